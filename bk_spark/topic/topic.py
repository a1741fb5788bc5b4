"""Topic: the messages of one topic of Pulsar as Arrow record batches, for Python without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import EARLIEST, LATEST, Offsets, Position
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.columns import TopicColumns
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.plan import ReadStart, TopicStarts, offset_in, readable
from bk_spark.topic.reading import MessageChoice, TopicPortion, TopicReading
from bk_spark.topic.view import TopicView


class Topic:
    """A topic of Apache Pulsar, read from the bookies and from the copies of its offloader. ``BookKeeper.open_topic`` makes it.

    Nothing is ever changed in Pulsar or its ledgers, and no writer is disturbed. An open ledger is read as far as its bookies
    know it to be confirmed: the last entry of an idle topic becomes visible with the next one.
    """

    def __init__(self, access: TopicAccess, name: str) -> None:
        self._access = access
        self._name = TopicName.parse(name)
        self._ledgers = TopicLedgers(access)
        self._ledgers.store.partitions(self._name)

    def __repr__(self) -> str:
        return f"<Topic '{self.name}'>"

    @property
    def name(self) -> str:
        """The whole name, such as ``persistent://public/default/orders``."""
        return str(self._name)

    def partitions(self) -> list[str]:
        """The whole names of its partitions now; of a topic without partitions, its own."""
        return [str(one) for one in self._ledgers.store.partitions(self._name)]

    def read(
        self,
        start: str = EARLIEST,
        end: str = LATEST,
        *,
        start_time_ms: int | None = None,
        subscription: str | None = None,
        schema: str = "raw",
        tombstones: bool = True,
        unreadable: str = "fail",
        fail_on_data_loss: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The messages from ``start``, included, to ``end``, excluded, partition after partition, in each in its order.

        The batches have the columns ``bk_spark.pulsar.columns.MESSAGE_SCHEMA``; with ``schema="topic"`` the column ``value``
        has the type of the topic's newest schema. ``start`` and ``end`` are ``earliest``, ``latest``, a position
        ``ledger:entry`` (or ``ledger:entry:batch index``, for ``start``), or the JSON of positions by partition. In place of
        ``start``, ``start_time_ms`` begins at that publish time (milliseconds since 1970), and ``subscription`` behind what
        this durable subscription has read. ``end`` is fixed when the read begins.

        ``tombstones=False`` leaves out messages without a value. ``unreadable="skip"`` leaves out messages that cannot be
        read, with a warning that counts them. With ``fail_on_data_loss=False`` messages that Pulsar trimmed before they were
        read are skipped, with a warning. Raises NoSuchTopicError, MessagesGoneError, UnreadableMessagesError,
        BookieUnavailableError, MetadataUnavailableError; ConfigError for a wrong argument.
        """
        if unreadable not in ("fail", "skip"):
            raise ConfigError("unreadable", unreadable, "it must be fail or skip")
        choice = MessageChoice(tombstones, unreadable == "skip", fail_on_data_loss)
        columns = TopicColumns.of(self._access, [self._name], schema)
        return self._rows(_start(start, start_time_ms, subscription), end, columns, choice)

    def _rows(self, start: ReadStart, end: str, columns: TopicColumns, choice: MessageChoice) -> Iterator[pa.RecordBatch]:
        until = Offsets.parse_end("end", end)
        starts = TopicStarts(self._access, self._ledgers)
        topics = self._ledgers.store.partitions(self._name)
        for topic, view in zip(topics, self._ledgers.views(topics), strict=True):
            begin = starts.position(start, topic, view)
            for portion in portions_between(topic, view, begin, offset_in("end", until.of(str(topic)), view), choice):
                reading = TopicReading(self._access, portion, choice)
                for ledger_id, rows in reading.rows():
                    yield columns.messages(topic, ledger_id, rows, reading)


def portions_between(
    topic: TopicName, view: TopicView, begin: Position, end: Position, choice: MessageChoice
) -> Iterator[TopicPortion]:
    """The portions between two positions that one reader can read, one after the other.

    Raises MessagesGoneError, UnreadableMessagesError.
    """
    begin = there(view, begin, choice)
    pairs = list(view.stretches(begin, end))
    for run in readable(pairs, view.topic, skip_unreadable=choice.skip_unreadable):
        is_first = (run[0].ledger_id, run[0].first_entry_id) == (begin.ledger_id, begin.entry_id)
        yield TopicPortion(topic, run, max(begin.batch_index, 0) if is_first else 0, until=view.end)


def there(view: TopicView, begin: Position, choice: MessageChoice) -> Position:
    """``begin``; with a warning the first position that there is, if entries before that are gone. Raises MessagesGoneError."""
    problem = view.missing_before(begin)
    if problem is None:
        return view.forward(begin)
    choice.lost(view.topic, problem)
    return view.first


def _start(start: str, start_time_ms: int | None, subscription: str | None) -> ReadStart:
    given = [one for one in (start_time_ms, subscription) if one is not None]
    if given and (len(given) > 1 or start != EARLIEST):
        raise ConfigError("start", start, "give one of start, start_time_ms and subscription")
    if given:
        return ReadStart(time_ms=start_time_ms, subscription=subscription)
    return ReadStart(Offsets.parse("start", start), what="start")
