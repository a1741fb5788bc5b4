"""What people and Spark write: options, conditions, offsets, URIs, command lines."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import cache

import pyarrow as pa

from bk_spark.cli import build_parser
from bk_spark.datasource.option_table import OPTIONS
from bk_spark.errors import BookKeeperError
from bk_spark.log.stream.positions import StreamPosition, behind, parse_position
from bk_spark.metadata.uri import parse_uri
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_bytes, spoil_json

UID = "0f0e3a52"


class UsageError(Exception):
    """A command line that argparse refuses."""


def targets() -> list[Target]:
    offsets = [position.to_json(UID).encode() for position in (StreamPosition(41, 3, 7, 12), behind(0), behind(9))]
    uris = [b"zk://127.0.0.1:2181/ledgers", b"zk://a:1,[::1]:2,c.d:65535/x/y"]
    return [
        Target("where", lambda: _CONDITIONS, _of_text(_condition)),
        Target("stream offset", lambda: offsets, _of_text(_position), spoil_json),
        Target("Spark options", lambda: _OPTION_SEEDS, _of_text(_option)),
        Target("metadata URI", lambda: uris, _of_text(parse_uri)),
        Target("command line", lambda: _COMMANDS, _of_text(_command_line), spoil_bytes, (BookKeeperError, UsageError)),
    ]


def _of_text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode(errors="surrogateescape"))


_CONDITIONS: Sequence[bytes] = (
    b"a = 5 AND (b != 'x''y') AND c IN (1, -2.5, 3e9) AND `odd ``name` IS NOT NULL",
    b"t BETWEEN TIMESTAMP '2026-01-31 10:00:00' AND TIMESTAMP '2026-02-01' AND x = X'00FF'",
    "((ünı <= .5)) and d >= DATE '2026-01-31' and q = TRUE".encode(),
    b"(" * 300 + b"a=1" + b")" * 300,
    b"a = 1e999999999999999999 AND b = " + b"9" * 600,
    b"NOT (5 < a OR NOT b NOT LIKE 'a!%%_' ESCAPE '!') AND (c) <=> NULL OR `d.e`.`f``g`.h NOT BETWEEN (1) AND ((2))",
    rb"s LIKE 'a\%b\_%' OR t.s NOT LIKE '%\\\\%x' AND NOT NOT t.n NOT IN ('NaN', 1.5) OR NULL <=> s",
    b"NOT (" * 99 + b"n = 1 OR s LIKE '%" + b"_%" * 400 + b"'" + b")" * 99,
)

_FLAT = [
    ("s", pa.string()),
    ("n", pa.int64()),
    ("a", pa.decimal128(38, 18)),
    ("b", pa.string()),
    ("c", pa.timestamp("us", "UTC")),
]
_COLUMNS = pa.schema([*_FLAT, ("t", pa.struct(_FLAT)), ("d.e", pa.struct([("f`g", pa.struct([("h", pa.float64())]))]))])
_NULLS = pa.RecordBatch.from_arrays([pa.nulls(2, field.type) for field in _COLUMNS], schema=_COLUMNS)


def _condition(text: str) -> None:
    """Parsed, bound to columns, and asked of two rows of nulls and of an entry of unknown values."""
    bound = bind(parse_where("where", text), "orders", _COLUMNS, UTC)
    bound.may_match(2, {})
    assert bound.matching(_NULLS).num_rows in (0, 2)


def _position(text: str) -> None:
    position = parse_position(text, "orders", UID, "option 'startingOffsets'")
    assert json.loads(position.to_json(UID)) == position.to_offset(UID)
    assert parse_position(position.to_json(UID), "orders", UID, "it") == position


_OPTION_SEEDS: Sequence[bytes] = tuple(
    f"{option.name}={value}".encode()
    for option in OPTIONS
    for value in ("", "5", "64m", "true", "earliest", "2026-03-01T12:30:00+01:00", "3-9,12", "1.5", '{"a":1}', "9" * 5000)
)


def _option(text: str) -> None:
    """A name, = and a value."""
    name, _, value = text.partition("=")
    for option in OPTIONS:
        if option.name == name:
            option.parse(name, value)


_COMMANDS: Sequence[bytes] = (
    b"cluster init --metadata zk://127.0.0.1:2181/ledgers",
    b"bookie start --data-dir /d --metadata zk://h:1/l --port 3181 --read-threads 4 --disk-usage-high 0.9",
    b"bookie start --data-dir /d --metadata zk://h:1/l --journal-write-data false",
    b"ledger show 7 --metadata zk://h:1/l --json",
    b"log show orders --version 3 --metadata zk://h:1/l",
    b"ledger list --metadata x",
)


@cache
def _parser() -> argparse.ArgumentParser:
    return build_parser()


def _command_line(text: str) -> None:
    """What argparse makes of the words; no command is run."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            _parser().parse_args(text.split())
    except SystemExit as end:
        if end.code not in (0, 2):
            raise AssertionError(f"it ended with {end.code}") from None
        raise UsageError(told.getvalue().splitlines()[-1] if told.getvalue() else "help") from None
