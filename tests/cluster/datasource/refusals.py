"""What a read is refused for, and the sentence that its user sees: a table for tests without Spark and with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import IntegerType, StructField, StructType

from bk_spark.log.stream.positions import Offset

UNREACHABLE = {"metadata": "zk://127.0.0.1:1/ledgers", "client.connect_timeout_s": 1}

Case = tuple[dict[str, Any], str]


def batch_reads(log: str) -> dict[str, Case]:
    """Of a log that holds the numbers 1 and 2 in one version, with the password ``right``."""
    return {
        "no such log": ({"log": "nobody"}, "there is no log 'nobody'"),
        "no log": ({"log": None}, "it must name the log: .load('name')"),
        "wrong password": ({"log": log, "password": "wrong"}, "wrong password for ledger"),
        "no such version": ({"log": log, "versionAsOf": 9}, "has the versions 0 to 1"),
        "empty version": ({"log": log, "versionAsOf": 0}, "it holds nothing and has no schema"),
        "option of a write": ({"log": log, "ensembleSize": 3}, "option 'ensembleSize' is 3: it does not apply to a batch read"),
        "option of a stream": (
            {"log": log, "maxRowsPerTrigger": 3},
            "it does not apply to a batch read: it belongs to a stream read",
        ),
        "another type": ({"log": log, "schema": integers("id")}, "column 'id' is bigint, it is asked for as int"),
        "no such column": ({"log": log, "schema": integers("nope")}, "column 'nope' is asked for, the columns are id"),
        "another digest": ({"log": log, "password": "right", "digestType": "HMAC"}, "was created with CRC32C"),
        "condition": (
            {"log": log, "where": "id = 1 XOR id = 2"},
            "XOR is not understood there; it takes comparisons of a column",
        ),
        "column of a condition": ({"log": log, "where": "nope = 1"}, "has no column 'nope', its columns are id"),
        "no offset": (
            {"log": log, "startingOffsets": "12"},
            "it must be earliest or latest, or an offset of a stream such as",
        ),
        "start at the end": ({"log": log, "startingOffsets": "latest"}, "only a stream starts there"),
        "no such ledger": ({"log": None, "ledger": "99999999"}, "there is no ledger 99999999"),
        "no cluster": ({"log": log, "metadata": "nonsense"}, "nonsense"),
        "no server": ({"log": log, **UNREACHABLE}, "does not answer"),
    }


def stream_reads(log: str, start: Offset) -> dict[str, Case]:
    """Of a log that was truncated behind ``start``."""
    return {
        "no such log": ({"log": "nobody"}, "there is no log 'nobody'"),
        "unknown option": ({"log": log, "maxRowPerTrigger": 5}, "the nearest is 'maxRowsPerTrigger'"),
        "option of a batch": (
            {"log": log, "versionAsOf": 1},
            "option 'versionAsOf' is 1: it does not apply to a stream read",
        ),
        "condition": ({"log": log, "where": "id RLIKE '5'"}, "RLIKE is not understood there"),
        "no server": ({"log": log, **UNREACHABLE}, "does not answer"),
        "another log": (
            {"log": log, "startingOffsets": json.dumps(start | {"log": "another"})},
            "it was deleted and made anew",
        ),
        "truncated": ({"log": log, "startingOffsets": json.dumps(start)}, "set failOnDataLoss to false"),
    }


def without(cases: Mapping[str, Case], *names: str) -> dict[str, Case]:
    return {name: case for name, case in cases.items() if name not in names}


def only(cases: Mapping[str, Case], *names: str) -> dict[str, Case]:
    return {name: cases[name] for name in names}


def integers(name: str) -> StructType:
    return StructType([StructField(name, IntegerType())])
