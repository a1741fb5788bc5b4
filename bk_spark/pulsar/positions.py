"""Places in topics: of one message, of a read's start and end, and of a stream in all its topics.

17:3            entry 3 of ledger 17, or the first one behind it that there is
17:3:5          message 5 of the batch in that entry
-1:-1           before everything: Pulsar's earliest
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bk_spark.errors import ConfigError
from bk_spark.pulsar.names import TopicName

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

OFFSET_FORMAT: Final = 1
"""The form of a stream's offset in Spark's checkpoint."""

_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::([0-9]{1,9}))?")
_MAX = 2**63 - 1
_REMEDY = (
    "it must be earliest, latest, a message id such as 17:3 (ledger:entry) or 17:3:5 (with the index in a batch), or these by "
    'topic as JSON: {"persistent://public/default/orders-partition-0": "17:3"}'
)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in one topic: what is not before it is next. ``batch_index`` -1 means the whole entry."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @staticmethod
    def parse(what: str, text: str) -> Position:
        """Raises ConfigError, in which ``what`` names the text."""
        match = _TEXT.fullmatch(text)
        if match is None or max(int(match[1]), int(match[2])) > _MAX:
            raise ConfigError(what, text, _REMEDY)
        return Position(int(match[1]), int(match[2]), int(match[3] or -1))

    @property
    def entry(self) -> str:
        """The entry alone, as text."""
        return f"{self.ledger_id}:{self.entry_id}"

    def __str__(self) -> str:
        index = "" if self.batch_index < 0 else f":{self.batch_index}"
        return f"{self.entry}{index}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a read begins or ends: in all topics alike, or in each that ``by_topic`` names; the others begin at ``default``."""

    default: str | Position
    by_topic: Mapping[str, str | Position]

    @staticmethod
    def at(word: str) -> Offsets:
        """``earliest`` or ``latest`` in all topics."""
        return Offsets(word, {})

    @staticmethod
    def parse(what: str, text: str, others: str = EARLIEST) -> Offsets:
        """``others`` holds for topics that the JSON of positions does not name. Raises ConfigError, which names ``what``."""
        if not text.lstrip().startswith("{"):
            return Offsets(_offset(what, text), {})
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()) or not found:
            raise ConfigError(what, text, _REMEDY)
        by_topic = {str(TopicName.parse(name)): _offset(what, value) for name, value in found.items()}
        if len(by_topic) < len(found):
            raise ConfigError(what, text, "it names a topic twice: give each once, a short name is one of public/default")
        return Offsets(others, by_topic)

    @staticmethod
    def parse_end(what: str, text: str) -> Offsets:
        """As ``parse``, for where a read ends: between entries, and at the latest one in topics that are not named."""
        found = Offsets.parse(what, text, LATEST)
        for one in (found.default, *found.by_topic.values()):
            if isinstance(one, Position) and one.batch_index >= 0:
                raise ConfigError(what, str(one), f"a read ends between entries: leave out the index, {one.entry}")
        return found

    def of(self, topic: str) -> str | Position:
        """``earliest``, ``latest`` or a position in a topic, which has its whole name."""
        return self.by_topic.get(topic, self.default)

    def check_names(self, what: str, topics: Collection[str]) -> None:
        """Raise ConfigError for a position in a topic that is not read, or for one position in several topics."""
        for name in self.by_topic:
            if name not in topics:
                known = ", ".join(sorted(topics)[:10]) + (" …" if len(topics) > 10 else "")
                raise ConfigError(what, name, f"it names a topic that is not read: those are {known}")
        if isinstance(self.default, Position) and len(topics) > 1:
            read = f"{len(topics)} are read, partitions counted"
            remedy = f"a message id is a place in one topic, and {read}: give one by topic, {_JSON}"
            raise ConfigError(what, str(self.default), remedy)


_JSON = 'as JSON such as {"persistent://public/default/orders-partition-0": "17:3"}'


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """Where a stream stands in each topic, by its whole name: the next entry to read."""

    positions: Mapping[str, Position]

    def to_json(self) -> dict[str, Any]:
        """The same dictionary for the same places, for Spark's checkpoint."""
        return {"format": OFFSET_FORMAT, "topics": {name: str(self.positions[name]) for name in sorted(self.positions)}}

    @staticmethod
    def from_json(value: object) -> TopicOffset:
        """Raises ConfigError for what is no offset of topics, or one of a later release."""
        what = "the offset of a stream over topics"
        remedy = "it is none of this format: use a new checkpoint, and say with 'startingOffsets' where to begin"
        if not isinstance(value, dict) or not isinstance(value.get("topics"), dict):
            raise ConfigError(what, value, remedy)
        if value.get("format") != OFFSET_FORMAT:
            raise ConfigError(
                what, value, f"it has format {value.get('format')}, this release reads {OFFSET_FORMAT}: use a newer one"
            )
        return TopicOffset({str(name): _stored(what, str(text)) for name, text in value["topics"].items()})


def _offset(what: str, text: str) -> str | Position:
    return text.lower() if text.lower() in (EARLIEST, LATEST) else Position.parse(what, text)


def _stored(what: str, text: str) -> Position:
    return Position(-1, -1) if text == "-1:-1" else Position.parse(what, text)
