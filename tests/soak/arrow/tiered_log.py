"""A log of a real cluster whose rows move into its tier behind each append: what is read comes from files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as of

from bk_spark import Tier
from bk_spark.errors import ConfigError
from tests.soak.arrow.cluster_log import ClusterLog

Types = dict[str, pa.DataType]


class TieredLog(ClusterLog):
    """As ClusterLog. A table can hold fewer types than a log: such a log stays without a tier, or its tier stops."""

    _has_tier = False
    _is_stopped = False

    def append(self, rows: Any, *, merge: bool, scribble: Callable[[], None], is_whole: bool) -> None:
        super().append(rows, merge=merge, scribble=scribble, is_whole=is_whole)
        self._tier()

    def write(self, rows: Any, schema: pa.Schema, *, merge: bool, scribble: Callable[[], None]) -> None:
        super().write(rows, schema, merge=merge, scribble=scribble)
        self._tier()

    def refuses(self, before: Types, after: Types) -> bool:
        return self._has_tier and not all(
            _is_held(kind) and (name not in before or follows(before[name], kind)) for name, kind in after.items()
        )

    def _tier(self) -> None:
        """Raises AssertionError where a tier that could be is refused, or leaves something on bookies."""
        if self._is_stopped:
            return
        client = self._ways.client
        log = client.open_log(self._name)
        try:
            if not self._has_tier:
                table = f"soak.{self._name.replace('-', '_')}"
                log.set_tier(Tier(f"file://{self._ways.folder}/{self._name}", table, keep_on_bookies_s=0))
                self._has_tier = True
            client.tier_log(self._name)
        except ConfigError as problem:
            if is_held(log.schema):
                raise AssertionError(f"a tier was refused: {problem}") from problem
            self._is_stopped = True
            self._gone("refused tier")
            return
        left = client.existing_ledgers([one.ledger_id for one in log.ledgers()])
        if left or not is_held(log.schema):
            raise AssertionError(f"tiered, and {len(left)} ledgers are on bookies: {log.schema}")
        self._gone("tier")


def is_held(schema: pa.Schema) -> bool:
    """Whether a table can have such columns: the rules of docs/guide/lake.md, once more."""
    names = Counter(name for one in schema for name in _names(one.type, one.name))
    return max(names.values(), default=1) == 1 and all(map(_is_held, schema.types))


def _is_held(kind: pa.DataType) -> bool:
    """Of a column: a void one is none of the table, as long as it is not inside of another."""
    return bool(of.is_null(kind)) or not any(of.is_null(one) or of.is_duration(one) for one in _leaves(kind))


def follows(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether a column of a table can become the other type."""
    if of.is_null(before) or before.equals(after):
        return True
    if of.is_struct(before):
        return all(follows(one.type, after.field(one.name).type) for one in before)
    if of.is_list(before):
        return follows(before.value_type, after.value_type)
    if of.is_map(before):
        return follows(before.item_type, after.item_type)
    if of.is_decimal(before) and of.is_decimal(after):
        return bool(before.scale == after.scale)
    return bool((of.is_integer(before) and of.is_integer(after)) or (of.is_floating(before) and of.is_floating(after)))


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if not kind.num_fields:
        yield kind
    for place in range(kind.num_fields):
        yield from _leaves(kind.field(place).type)


def _names(kind: pa.DataType, place: str) -> Iterator[str]:
    yield place
    for one in kind if of.is_struct(kind) else ():
        yield from _names(one.type, f"{place}.{one.name}")
