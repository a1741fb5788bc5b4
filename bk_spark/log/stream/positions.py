"""Positions of streams in a log: Spark's offsets.

A stream reads a log commit by commit, in the order of versions, and never looks at the current list. A position names the
next entry to read: version, ledger, entry. ``index`` numbers the ledgers that a version gives a stream to read:

- An APPEND gives the ledgers that it added, then the one that it opened, from index 0. The ledgers that it found in the log
  have negative indexes. Only a stream that started in the middle of the log, at this version's listing, reads them.
- An OVERWRITE or a REPLACE gives all that it lists, from index 0.
- A COMPACT or a TRUNCATE gives nothing. All that it lists has negative indexes, the last one -1.

There is one normal form: the next entry stays in the ledger of the last entry read until a later ledger holds an entry.
Worked example: version 1 added ledger 7 with entries 0 to 11, version 2 is a compaction, version 3 added ledger 9. After
all of ledger 7 the position is version 1, ledger 7, entry 12. It stays there through version 2, and also through version 3
unless ledger 9 has an entry. A stream that starts at the end of the log has read nothing: it stands behind a version.

Spark's checkpoint keeps the end of a batch and takes its start from the batch before. It asks for the start of the first
batch again when it repeats that batch, and by then the log may have grown. So the first batch's end has its start in it.

Ref: docs/rules.md, log rule 6; docs/formats.md, "Offsets and cursors".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, TypeAlias

from bk_spark.errors import ConfigError

BEHIND = -1
"""Ledger id of a position behind everything that its version gives to read."""

_NUMBERS = ("entry", "index", "ledger", "version")
_FIELDS = {*_NUMBERS, "log"}
Offset: TypeAlias = dict[str, Any]
"""An offset as Spark gives and takes it: JSON."""

_MAX = 2**63 - 1
_FORM = 'an offset looks like {"entry":12,"index":3,"ledger":7,"log":"<the log\'s id>","version":41}'


@total_ordering
@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The next entry to read; ordered as a stream reads."""

    version: int
    index: int
    ledger_id: int
    """BEHIND: everything of ``version`` was read or is skipped; index and entry are 0."""
    entry_id: int

    @property
    def is_behind(self) -> bool:
        return self.ledger_id == BEHIND

    def __lt__(self, other: StreamPosition) -> bool:
        return self._key < other._key

    def to_offset(self, uid: str) -> Offset:
        """As Spark stores it. Keys are sorted, because Spark compares offsets as strings."""
        return dict(sorted({**self._numbers, "log": uid}.items()))

    def to_json(self, uid: str) -> str:
        """The only text of this position: sorted keys, no spaces."""
        return json.dumps(self.to_offset(uid), sort_keys=True, separators=(",", ":"))

    @property
    def _numbers(self) -> dict[str, int]:
        return dict(zip(_NUMBERS, (self.entry_id, self.index, self.ledger_id, self.version), strict=True))

    @property
    def _key(self) -> tuple[int, bool, int, int]:
        return (self.version, self.is_behind, self.index, self.entry_id)


def behind(version: int) -> StreamPosition:
    """Behind everything that ``version`` gives to read. Version 0 is the empty log: from there a stream reads all commits."""
    return StreamPosition(version, 0, BEHIND, 0)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """What Spark keeps of a stream: a position, and up to the end of the first batch also where the stream started."""

    position: StreamPosition
    start: StreamPosition | None = None

    def end_of_batch(self, end: StreamPosition) -> StreamOffset:
        """The offset of ``end``, in a batch that begins at this offset."""
        return StreamOffset(end, self.start if end == self.position or self.start == self.position else None)

    def start_of_batch(self, began: StreamOffset) -> StreamPosition:
        """Where the batch starts that ends here, if the batch before it ended at ``began``.

        Of the first batch Spark has no ``began``, and the source makes one anew: then the start that is kept here counts.
        """
        return began.position if self.start is None or began == self else self.start

    def to_offset(self, uid: str) -> Offset:
        """As Spark stores it, with sorted keys."""
        return self.with_field("log", uid)

    def with_field(self, key: str, value: str) -> Offset:
        """All that it says, and one field more, with sorted keys."""
        start = {} if self.start is None else {"start": self.start._numbers}
        return dict(sorted({**self.position._numbers, **start, key: value}.items()))


def stream_offset(offset: object, name: str, uid: str, what: str = "the offset in the checkpoint") -> StreamOffset:
    """What ``offset``, as Spark returns it, says of the log ``name`` with the id ``uid``.

    Raises ConfigError if it is malformed, or of another log, such as a deleted one of this name. Errors call it ``what``.
    """
    if isinstance(offset, dict) and "logs" in offset:
        problem = "it is of a stream over several logs: name them by 'logs' or 'logsPattern', or start with a new checkpoint"
        raise ConfigError(what, json.dumps(offset), problem)
    if not isinstance(offset, dict) or offset.keys() - {"start"} != _FIELDS:
        raise ConfigError(what, offset, _FORM)
    parsed = offset_in_log(offset, what, _FORM)
    if not isinstance(offset["log"], str):
        raise ConfigError(what, offset, f"'log' must be the log's id; {_FORM}")
    if offset["log"] != uid:
        problem = f"log '{name}' has the id {uid} now: it was deleted and made anew, start with a new checkpoint"
        raise ConfigError(what, json.dumps(offset), problem)
    return parsed


def offset_in_log(fields: dict[str, Any], what: str, form: str) -> StreamOffset:
    """The place in one log that an offset's fields name; other fields do not matter. ``form`` says in errors how it looks."""
    position = _position(fields, fields, what, form)
    if "start" not in fields:
        return StreamOffset(position)
    numbers = fields["start"]
    if not isinstance(numbers, dict) or numbers.keys() != {*_NUMBERS}:
        raise ConfigError(what, fields, f"'start' must have {', '.join(_NUMBERS)}; {form}")
    start = _position(numbers, fields, what, form)
    if start > position:
        raise ConfigError(what, fields, f"'start' must not lie behind it; {form}")
    return StreamOffset(position, start)


def position_of_offset(offset: object, name: str, uid: str, what: str = "the offset in the checkpoint") -> StreamPosition:
    """The position of an offset. Raises as ``stream_offset``."""
    return stream_offset(offset, name, uid, what).position


def _position(numbers: dict[str, Any], offset: Offset, what: str, form: str) -> StreamPosition:
    for field in _NUMBERS:
        number, least = numbers[field], {"index": -_MAX, "ledger": BEHIND}.get(field, 0)
        if type(number) is not int or not least <= number <= _MAX:
            raise ConfigError(what, offset, f"'{field}' must be a whole number from {least} on; {form}")
    if numbers["ledger"] == BEHIND and (numbers["index"], numbers["entry"]) != (0, 0):
        raise ConfigError(what, offset, f"behind everything of a version (ledger {BEHIND}), index and entry are 0; {form}")
    if numbers["version"] == 0 and numbers["ledger"] != BEHIND:
        raise ConfigError(what, offset, f"version 0 is the empty log, which has no ledger; {form}")
    return StreamPosition(numbers["version"], numbers["index"], numbers["ledger"], numbers["entry"])


def parse_position(text: str, name: str, uid: str, what: str) -> StreamPosition:
    """As ``position_of_offset``, for an offset as a user writes it. ``what`` names the option in errors."""
    try:
        offset = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        raise ConfigError(what, str(text)[:200], f"it is not JSON; {_FORM}") from None
    return position_of_offset(offset, name, uid, what)
