"""Everything that users' scripts, operators' tools and other versions rely on by name, one a line.

``python -m tests.unit.public_interface`` prints it; ``public_interface.txt`` holds it, and a test compares them. A line that
goes or changes breaks somebody: change the file only together with CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import bk_spark
from bk_spark import aio, proto
from bk_spark.cli import build_parser
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.config import BookieConfig, ClientConfig, LedgerOptions
from bk_spark.datasource.option_table import OPTIONS
from bk_spark.datasource.source import BookKeeperDataSource
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.local.cluster import LocalBookie
from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.log_handle import Log
from bk_spark.log.rows.row_writer import RowWriteHandle
from bk_spark.log.rows.tail_rows import RowTail
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry import metrics
from bk_spark.topic.topic import Topic

HANDED_OUT = (
    WriteHandle,
    AdvWriteHandle,
    ReadHandle,
    Log,
    LogWriteHandle,
    RowWriteHandle,
    RowTail,
    Topic,
    LocalBookie,
    LocalZooKeeper,
    BookKeeperDataSource,
    *(getattr(aio, name) for name in aio.__all__ if name.startswith("Async")),
)
"""What users get from the names above, and what Spark takes."""

HELD = Path(__file__).with_name("public_interface.txt")


def lines() -> list[str]:
    """Sorted within each kind."""
    kinds = (_names(), _settings(), _options(), _commands(), _metrics(), _messages())
    return [line for kind in kinds for line in sorted(kind)]


def _names() -> Iterator[str]:
    for name in bk_spark.__all__:
        yield f"name {name}"
    yield f"name aio.connect{_signature(aio.connect)}"
    for kind in [*(getattr(bk_spark, name) for name in bk_spark.__all__), *HANDED_OUT]:
        if inspect.isclass(kind) and issubclass(kind, BaseException):
            yield f"error {kind.__name__}({', '.join(list(inspect.signature(kind.__init__).parameters)[1:])})"
        elif inspect.isclass(kind):
            yield from {*_members(kind), *_attributes(kind)}


def _members(kind: type) -> Iterator[str]:
    for member, value in inspect.getmembers(kind):
        if member.startswith("_"):
            continue
        shown = _signature(value) if inspect.isroutine(value) and not issubclass(kind, Enum) else ""
        yield f"name {kind.__name__}.{member}{shown}"


def _attributes(kind: type) -> Iterator[str]:
    """What ``__init__`` sets of public attributes."""
    if inspect.isfunction(kind.__init__) and not dataclasses.is_dataclass(kind):
        for attribute in re.findall(r"self\.([a-z]\w*)(?:: [^=]+)? = ", inspect.getsource(kind.__init__)):
            yield f"name {kind.__name__}.{attribute}"


def _signature(function: Any) -> str:
    """Names, and which of them may be left out."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    return f"({', '.join(one.name + ('' if one.default is one.empty else '=') for one in parameters)})"


def _settings() -> Iterator[str]:
    for config in (BookieConfig, ClientConfig, LedgerOptions, AutoRecoveryConfig, GatewayConfig):
        for field in dataclasses.fields(config):
            default = "a new one" if field.default is dataclasses.MISSING else repr(field.default)
            yield f"setting {config.__name__}.{field.name} = {default}"


def _options() -> Iterator[str]:
    for option in OPTIONS:
        yield f"option {option.name} | {option.use} | {option.default} | {option.rows_only}"


def _commands() -> Iterator[str]:
    yield from _of_parser(build_parser(), "bk-spark")


def _of_parser(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _of_parser(inner, f"{words} {name}")
        else:
            named = "/".join(action.option_strings) or str(action.metavar or action.dest)
            yield f"command {words} {named} {action.choices or ''}".rstrip()


def _metrics() -> Iterator[str]:
    for group, described in metrics.DESCRIBED.items():
        for one in described:
            yield f"metric {group}: {getattr(one, 'name', one)}"


def _messages() -> Iterator[str]:
    for name in ("bookie_pb2", "ledger_metadata_pb2", "under_replication_pb2"):
        file: Any = __import__(f"{proto.__name__}.{name}", fromlist=["DESCRIPTOR"]).DESCRIPTOR
        for message in file.message_types_by_name.values():
            yield from _fields(message)
        for service in file.services_by_name.values():
            for method in service.methods:
                yield f"message {service.full_name}.{method.name}({method.input_type.full_name}) {method.output_type.full_name}"


def _fields(message: Any) -> Iterator[str]:
    for field in message.fields:
        yield f"message {message.full_name}.{field.name} = {field.number} type {field.type}"
    for inner in message.nested_types:
        yield from _fields(inner)
    for enum in message.enum_types:
        yield f"message {enum.full_name} {[(value.name, value.number) for value in enum.values]}"


if __name__ == "__main__":
    print("\n".join(lines()))
