"""The offset of a stream over several logs: where it stands in each of them, by the log's uid and name.

A position in one log, and the start that the end of a log's first batch carries, mean the same as in the offset of a stream
over one log (``positions.py``). What is added is which logs there are:

- The offset at the start of a query has every log that was there then, also an empty one.
- A log that was found later comes in with the end of the batch that first reads it. That end has the log's start, because the
  batch's own start does not know the log.
- A log that is gone, with ``failOnDataLoss=false``, is not in the next batch's end.

So what a batch reads follows from its two offsets alone, whatever logs there are when Spark repeats it.

Worked example: the query began behind version 3 of log a; log b came later, and its first five entries are read by the
second batch. The ends of its batches: {a: 5, start 3}, {a: 5, start 3; b: 5, start 0}, {a: 5, start 3; b: 9}. The third batch
reads nothing of a, whose two offsets are equal, and of b from 5 on.

Layout: docs/formats.md, "Offsets and cursors". Ref: docs/rules.md, log rule 6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.errors import ConfigError
from bk_spark.log.stream.positions import Offset, StreamOffset, StreamPosition, offset_in_log

FORMAT = 1

IN_CHECKPOINT = "the offset in the checkpoint"
"""What errors call an offset that comes from Spark."""

_FIELDS = {"entry", "index", "ledger", "name", "version"}
_UID = re.compile(r"[\w-]{1,100}", re.ASCII)
"""It becomes a part of paths in the metadata store."""

_FORM = (
    "an offset of several logs looks like "
    '{"format":1,"logs":{"<the log\'s id>":{"entry":12,"index":3,"ledger":7,"name":"orders","version":41}}}'
)


@dataclass(frozen=True, slots=True)
class InLog:
    """Where a stream stands in one of its logs."""

    name: str
    offset: StreamOffset


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a batch reads of one log: ``first`` included, ``last`` excluded."""

    uid: str
    name: str
    first: StreamPosition
    last: StreamPosition


@dataclass(frozen=True, slots=True)
class SeveralOffset:
    """Where a stream stands in each of its logs, by uid. MAX_LOGS_READ of them at most, so some 100 KiB of JSON."""

    logs: Mapping[str, InLog]

    def to_offset(self) -> Offset:
        """As Spark stores it. Keys are sorted, because Spark compares offsets as strings."""
        logs = {uid: one.offset.with_field("name", one.name) for uid, one in sorted(self.logs.items())}
        return {"format": FORMAT, "logs": logs}

    def ranges_from(self, start: SeveralOffset) -> Iterator[BatchRange]:
        """What the batch between ``start`` and this end reads, by the names of the logs.

        Raises ConfigError if a log has no start: the two are no offsets of one stream, one after the other.
        """
        for uid, one in sorted(self.logs.items(), key=lambda item: (item[1].name, item[0])):
            began = start.logs.get(uid, InLog(one.name, StreamOffset(one.offset.position, None)))
            if uid not in start.logs and one.offset.start is None:
                problem = (
                    "the batch's start does not have it, and its end does not say where it begins: start with a new checkpoint"
                )
                raise ConfigError(f"log '{one.name}' in the end of a batch", uid, problem)
            if began.offset != one.offset:
                yield BatchRange(uid, one.name, one.offset.start_of_batch(began.offset), one.offset.position)


def several_offset(offset: object, what: str = IN_CHECKPOINT) -> SeveralOffset:
    """What ``offset``, as Spark returns it, says. Raises ConfigError if it is malformed, or of a stream over one log."""
    if isinstance(offset, dict) and "log" in offset:
        problem = "it is of a stream over one log: name that log alone by load('name'), or start with a new checkpoint"
        raise ConfigError(what, json.dumps(offset), problem)
    if not isinstance(offset, dict) or offset.keys() != {"format", "logs"}:
        raise ConfigError(what, offset, _FORM)
    if offset["format"] != FORMAT:
        problem = f"this release reads format {FORMAT}: read it with the release that wrote it; {_FORM}"
        raise ConfigError(f"the format of {what}", offset["format"], problem)
    logs = offset["logs"]
    if not isinstance(logs, dict) or len(logs) > MAX_LOGS_READ:
        raise ConfigError(what, offset, f"'logs' must have {MAX_LOGS_READ} logs at most; {_FORM}")
    return SeveralOffset({uid: _in_log(uid, fields, what) for uid, fields in logs.items()})


def parse_several(text: str, what: str) -> SeveralOffset:
    """As ``several_offset``, for an offset as a user writes it. ``what`` names the option in errors."""
    try:
        offset = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(what, text, f"it is not JSON; {_FORM}") from None
    return several_offset(offset, what)


def _in_log(uid: str, fields: Any, what: str) -> InLog:
    if not isinstance(fields, dict) or fields.keys() - {"start"} != _FIELDS:
        raise ConfigError(what, fields, _FORM)
    if not _UID.fullmatch(uid):
        raise ConfigError(what, uid, f"a log's id has letters, digits, '-' and '_'; {_FORM}")
    if not isinstance(fields["name"], str) or not fields["name"]:
        raise ConfigError(what, fields, f"'name' must be the log's name; {_FORM}")
    return InLog(fields["name"], offset_in_log(fields, what, _FORM))
