"""The logs that a caller may see, each as a FlightInfo, one after the other: thousands need no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.gateway.flight.messages import UNKNOWN_TOTAL, Endpoint, encode_info
from bk_spark.gateway.flight.requests import AskedList, AskedRead, GivenDescriptor
from bk_spark.log.stored.values import Content
from bk_spark.rows.arrow_types import arrow_schema

MOST_LOGS_LISTED: Final = 1_000
"""Of one list. Each costs three questions to the metadata store, some milliseconds."""


def listed_logs(
    client: BookKeeper, asked: AskedList, may_see: Callable[[str], bool], locations: tuple[str, ...]
) -> Iterator[bytes]:
    """A FlightInfo for each, by name. Raises ConfigError where they are too many, and no page was asked for."""
    names = [one for one in client.list_logs() if one.startswith(asked.prefix) and one > asked.after and may_see(one)]
    most = MOST_LOGS_LISTED if asked.limit is None else min(asked.limit, MOST_LOGS_LISTED)
    if asked.limit is None and len(names) > most:
        remedy = f'a list has {most} logs at most: give a longer prefix, or pages, such as {{"limit": {most}, "after": "name"}}'
        raise ConfigError("the number of logs to list", len(names), remedy)
    for name in islice(names, most):
        try:
            yield _info(client, name, locations)
        except NoSuchLogError:
            continue  # it was deleted meanwhile


def _info(client: BookKeeper, name: str, locations: tuple[str, ...]) -> bytes:
    """A log of entries, which cannot be read here, and one without rows have neither columns nor an endpoint."""
    logs = client.logs
    uid = logs.names.uid(name)
    head = logs.names.head(name, uid)
    descriptor = GivenDescriptor((name,))
    if head.content is not Content.ROWS or head.schema_id is None:
        return encode_info(pa.schema([]).serialize().to_pybytes(), descriptor, [], UNKNOWN_TOTAL)
    schema = arrow_schema(logs.reader.schema(name, uid, head.schema_id))
    records = UNKNOWN_TOTAL if head.writer.open_ledgers else head.total.rows
    endpoint = Endpoint(AskedRead(name, version=head.version, uid=uid).ticket, locations)
    return encode_info(schema.serialize().to_pybytes(), descriptor, [endpoint], records)
