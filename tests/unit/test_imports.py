"""Who may import whom, by folder (DESIGN.md, "Layers"); and how large the house is (``python -m tests.unit.test_imports``)."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.unit.import_graph import (
    FILES,
    MODULES,
    PACKAGE,
    circles,
    floors,
    graph,
    imported_names,
    missing_names,
    module_of,
    nodes_of,
)

EVERYTHING = "*"
OF_NAMES = ["benchmarks", "examples", *sorted(str(one.relative_to(ROOT)) for one in (ROOT / "tests").glob("*/[!_]*/"))]
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # shared
    "version": (),
    "errors": (),
    "calls": ("errors",),
    "proto": (),
    "quorum": ("errors",),
    "host_port": (),
    "config": ("quorum", "host_port"),
    "process": ("config",),
    "telemetry": ("errors", "host_port"),
    "tls": ("config",),
    "entries": ("config",),
    "entries/rate": (),
    "rows/lane_limits": (),
    "rows": ("entries",),
    "wire": ("entries", "proto"),
    "metadata": ("entries", "proto", "calls", "tls"),
    "pulsar": ("entries", "proto"),
    # client
    "client": (),
    "progress": (),
    "client/protocol": ("wire", "metadata", "entries/rate"),
    "client/driver": ("client/protocol", "telemetry", "tls"),
    "client/ledger": ("client/driver",),
    "log": (),
    "log/stored": ("metadata", "rows/lane_limits"),
    "log/entry_range": ("log/stored",),
    "log/changes": ("log/stored",),
    "log/stream": ("log/stored", "client/ledger"),
    "log/log_store": ("log/changes", "log/stream"),
    "log/secure_log": ("log/log_store",),
    "log/direct_readers": ("log/log_store",),
    "log/leader": ("log/log_store", "log/entry_range"),
    "log/cleanup": ("log/log_store", "progress"),
    "log/write_ledger": ("log/stored", "client/ledger"),
    "files": ("errors",),
    "log/tier": ("log/log_store", "client/ledger", "rows", "files"),
    "log/spans": ("log/tier",),
    "log/rows": (
        "log/leader",
        "log/spans",
        "client/ledger",
        "log/write_ledger",
        "rows",
    ),
    "log/lookup": ("log/rows",),
    "log/by_key": ("log/rows", "log/cleanup"),
    "log/log_handle": ("log/leader", "log/by_key", "log/lookup", "log/secure_log"),
    "lake": ("log/tier", "log/cleanup"),
    "topic": ("client/ledger", "pulsar", "files"),
    "log/log_transaction": ("log/log_handle",),
    "bookkeeper": ("log/log_transaction", "lake", "topic", "embedded/join"),
    "replication": ("bookkeeper",),
    "aio": ("bookkeeper",),
    "gateway": ("gateway/calls", "process", "telemetry", "tls", "gateway/access_rules", "gateway/guesses"),
    "gateway/calls": ("bookkeeper", "gateway/flight", "gateway/rights", "gateway/settings", "gateway/due_calls"),
    "gateway/flight": ("log/rows", "rows"),
    "gateway/settings": ("config",),
    "gateway/rights": ("log/stored",),
    "gateway/tokens": ("gateway/rights",),
    "gateway/access_records": ("gateway/tokens",),
    "gateway/access_rules": ("gateway/access_records",),
    "gateway/guesses": (),
    "gateway/due_calls": (),
    # bookie
    "bookie": (),
    "bookie/pace": ("entries/rate",),
    "bookie/background_task": (),
    "bookie/disk": ("errors",),
    "bookie/directories": ("config", "bookie/disk"),
    "bookie/log_files": ("entries", "bookie/directories"),
    "bookie/index": ("bookie/log_files",),
    "bookie/progress": ("bookie/pace",),
    "bookie/storage": ("bookie/index", "bookie/progress"),
    "bookie/identity": ("bookie/index", "metadata"),
    "bookie/bookie": ("bookie/batch_read", "bookie/identity", "version"),
    "bookie/admission": ("bookie/storage", "wire"),
    "bookie/batch_read": ("bookie/admission",),
    "bookie/whole_read": ("bookie/batch_read",),
    "bookie/server": ("bookie/bookie", "bookie/whole_read", "process", "telemetry", "tls"),
    "bookie/repair": ("bookie/bookie", "bookie/background_task"),
    "bookie/space": ("bookie/storage", "bookie/background_task", "metadata"),
    "bookie/inspection": ("bookie/identity",),
    "bookie/process": ("bookie/server", "bookie/repair", "bookie/space"),
    # Spark, the dashboard, and what joins both sides
    "datasource": (),
    "datasource/plain_errors": ("errors",),
    "datasource/spark_schema": ("rows", "log/stored"),
    "datasource/sizes": ("config",),
    "datasource/option_values": ("bookkeeper", "pulsar", "rows"),
    "datasource/connection": ("bookkeeper", "process"),
    "datasource/passwords": ("errors", "tls"),
    "datasource/worker_python": (),
    "datasource/option_table": ("datasource/option_values", "datasource/sizes", "datasource/passwords", "rows"),
    "datasource/options": ("datasource/option_table", "embedded/join"),
    "datasource/background": ("log/stream",),
    "datasource/read": (
        "datasource/background",
        "datasource/options",
        "datasource/connection",
        "datasource/plain_errors",
        "datasource/spark_schema",
    ),
    "datasource/write": ("datasource/options", "datasource/connection", "datasource/plain_errors", "datasource/spark_schema"),
    "datasource/topics": ("datasource/read",),
    "datasource/ledgers": ("datasource/read",),
    "datasource/source": (
        "datasource/read",
        "datasource/ledgers",
        "datasource/topics",
        "datasource/write",
        "datasource/worker_python",
    ),
    "datasource/jobs": ("datasource/source", "replication", "lake"),
    "dashboard": ("replication",),
    "embedded": (),
    "embedded/owners": (),
    "embedded/join": ("config", "embedded/owners"),
    "embedded/turn": (),
    "embedded/users": ("embedded/join",),
    "local/embedded_host": ("embedded/turn", "embedded/users", "local"),
    "local": ("bookie/identity", "replication", "embedded/join", "embedded/turn"),
    "commands": (EVERYTHING,),
    "cli": (EVERYTHING,),
    "": (EVERYTHING,),
}
"""Folder or module → what it may import, and with it all that those may import. A module is bound by the longest entry that
it lies in; inside of an entry everybody may import everybody."""

NEVER = {
    "client/protocol": ("metadata/store", "metadata/zookeeper", "metadata/registration", "metadata/under_replication"),
    "topic": (
        "client/ledger/recovery_on_open",
        "client/ledger/write_handle",
        "client/protocol/recover_ledger",
        "client/protocol/add_entries",
        "client/driver",
    ),
}
"""Taken away again: a state machine takes values of ledger metadata, never calls of the store; and what reads topics of Pulsar
imports nothing that fences, recovers or writes."""

JOINERS = (
    "embedded/owners",
    "embedded/join",
    "embedded/turn",
    "embedded/users",
    "local/embedded_host",
    "local",
    "commands",
    "cli",
    "",
)
"""What joins both sides uses the machine directly."""

USES = {
    # packages of others
    "pyspark": ("datasource",),
    "py4j": ("datasource",),
    "grpc": (
        "client/driver",
        "bookie/server",
        "proto",
        "tls/grpc_credentials",
        "gateway/service",
        "gateway/server",
        "gateway/calls",
    ),
    "kazoo": ("metadata",),
    "cryptography": ("tls/certificates", "local/security"),
    "fastavro": ("pulsar/values/avro_values",),
    "puresasl": ("client/driver/apache/sasl",),
    "pyiceberg": ("lake/iceberg", "lake/rest"),
    "sqlite3": ("bookie/index/sqlite_database",),
    "crc32c": ("entries/crc",),
    "prometheus_client": ("telemetry", "dashboard"),
    # the machine
    "asyncio": ("client/driver", "replication", "aio", "bookie/server", "bookie/process"),
    "os": (
        "process",
        "bookie/disk",
        "calls/forks",
        "datasource/connection",
        "datasource/options",
        "datasource/plain_errors",
        "datasource/worker_python",
        "files",
    ),
    "queue": ("client/ledger", "log/rows", "bookie/server", "gateway"),
    "random": ("client/driver",),
    "secrets": ("bookie/server/apache/logins", "log/secure_log"),
    "select": (),
    "socket": (
        "metadata/zookeeper_obstacles",
        "metadata/zookeeper_session",
        "telemetry/http_endpoint",
        "tls/diagnosis",
        "client/driver/apache",
        "bookie/server",
    ),
    "subprocess": ("datasource/worker_python",),
    "threading": (
        "calls",
        "metadata",
        "telemetry",
        "tls/files",
        "client/driver",
        "client/ledger",
        "log/leader",
        "log/lookup",
        "log/rows",
        "log/log_transaction",
        "log/tier/kept_footers",
        "log/tier/kept_group",
        "log/write_ledger",
        "lake/watch",
        "bookkeeper",
        "replication",
        "aio/calls",
        "gateway",
        "bookie/identity",
        "bookie/log_files",
        "bookie/storage",
        "bookie/server",
        "bookie/background_task",
        "bookie/repair",
        "bookie/process",
        "datasource",
        "dashboard",
    ),
    "time": (
        "metadata",
        "telemetry",
        "tls/files",
        "client/driver",
        "log/rows",
        "lake/watch",
        "replication",
        "gateway",
        "bookie/pace",
        "bookie/process",
        "datasource",
        "dashboard",
    ),
}
"""Package → who may import it beside the joiners. ``client/protocol`` uses none of the machine."""

OPENS_FILES = ("datasource/passwords", "bookie/disk", *JOINERS)


def _lies_in(module: str, entries: tuple[str, ...]) -> bool:
    return any(module == entry or (entry != "" and module.startswith(f"{entry}/")) for entry in entries)


def _entry_of(module: str) -> str:
    """The longest entry of MAY_IMPORT that the module lies in."""
    return max((entry for entry in MAY_IMPORT if _lies_in(module, (entry,))), key=len)


def _allowed(entry: str) -> set[str]:
    """The entries that an entry may import: itself, what it names, and what those may."""
    found = {entry}
    for other in MAY_IMPORT[entry]:
        found |= {EVERYTHING} if other == EVERYTHING else _allowed(other)
    return found


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_module_imports_only_what_lies_below_its_folder(path: Path) -> None:
    module = module_of(path)
    allowed = _allowed(_entry_of(module))
    never = NEVER.get(_entry_of(module), ())
    wrong = [
        other
        for other in sorted(graph()[module])
        if _lies_in(other, never) or (EVERYTHING not in allowed and _entry_of(other) not in allowed)
    ]
    assert wrong == []


def test_clients_and_bookies_never_import_each_other() -> None:
    of_clients = ("client", "log", "topic", "bookkeeper", "replication", "aio")
    sides = [(module, other) for module, others in graph().items() for other in others]
    crossing = [
        (module, other)
        for one in sides
        for module, other in (one, one[::-1])
        if _lies_in(module, of_clients) and _lies_in(other, ("bookie",))
    ]
    assert crossing == []


def test_leaders_and_the_cleanup_of_logs_never_meet() -> None:
    assert "log/cleanup" not in _allowed("log/leader")
    assert "log/leader" not in _allowed("log/cleanup")


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(graph()) == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_packages_and_the_machine_are_used_only_where_the_table_says(path: Path) -> None:
    module = module_of(path)
    if _entry_of(module) in JOINERS:
        return
    tops = {name.split(".")[0] for name in imported_names(path)}
    assert [top for top in sorted(tops & USES.keys()) if not _lies_in(module, USES[top])] == []


@pytest.mark.parametrize("folder", OF_NAMES)
def test_benchmarks_examples_and_tests_take_and_replace_only_names_that_the_package_has(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    missing = {str(path.relative_to(ROOT)): missing_names(path) for path in files}
    assert {file: names for file, names in missing.items() if names} == {}


def test_files_are_opened_only_by_the_disk_module_and_the_joiners() -> None:
    users = {
        module_of(path)
        for path in FILES
        for node in nodes_of(path, "open(")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    }
    assert [name for name in sorted(users) if not _lies_in(name, OPENS_FILES)] == []


def test_bookies_and_clients_make_no_array_of_arrow_in_the_way_that_imports_pandas() -> None:
    """``pa.array`` does at its first call, and the first read of a bookie, or add of a client, would take 0.2 s longer."""
    users = {
        module_of(path)
        for path in FILES
        for node in nodes_of(path, "pa.array")
        if isinstance(node, ast.Attribute)
        and node.attr == "array"
        and isinstance(node.value, ast.Name)
        and node.value.id == "pa"
    }
    assert [name for name in sorted(users) if _lies_in(name, ("bookie", "client", "entries", "metadata", "wire"))] == []


def test_the_tables_name_only_what_exists() -> None:
    named = {place for table in (USES, NEVER, MAY_IMPORT) for places in table.values() for place in places} | MAY_IMPORT.keys()
    assert sorted(named - MODULES.keys() - {EVERYTHING, "proto"}) == []


MOST_FILES = 20
MOST_FILES_AT_THE_TOP = 9


def _files_of_folders() -> Counter[str]:
    return Counter(path.parent.relative_to(PACKAGE).as_posix() for path in FILES)


def test_every_folder_can_be_taken_in_at_one_look() -> None:
    files = _files_of_folders()
    assert files.pop(".") <= MOST_FILES_AT_THE_TOP
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=module_of)
def test_every_package_says_what_is_in_it_what_it_imports_and_where_to_begin(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert module_of(path) in ("", "errors") or ("mport" in text and "Begin with" in text)


def test_no_public_class_name_is_defined_twice() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module_of(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


if __name__ == "__main__":
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    print(f"{len(FILES)} modules, {lines} lines, {floors(graph())} floors, {len(circles(graph()))} circles")
    for folder, count in sorted(_files_of_folders().items()):
        print(f"{count:4} {folder}")
