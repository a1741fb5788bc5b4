"""Who may import whom: the tables of DESIGN.md, "Layers", held against the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bk_spark"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")))

JOINERS = {
    "__init__.py",
    "cli.py",
    "local_autorecovery.py",
    "local_cluster.py",
    "local_process.py",
    "local_security.py",
    "local_zookeeper.py",
    "commands/",
}
"""May import from every layer, and use the machine directly."""

THIRD_PARTY = {
    "pyspark": {"datasource/"},
    "py4j": {"datasource/"},
    "grpc": {
        "client/transport.py",
        "client/runner.py",
        "client/connections.py",
        "client/channels.py",
        "bookie/server.py",
        "bookie/open_calls.py",
        "tls.py",
    },
    "kazoo": {"zookeeper.py", "zookeeper_connections.py", "zookeeper_auth.py"},
    "cryptography": {"certificates.py", "local_security.py"},
    "sqlite3": {"bookie/sqlite_database.py"},
    "crc32c": {"checksum.py"},
    "prometheus_client": {"metrics_registry.py", "dashboard/scrape.py"},
}

STANDARD = {
    "os": {"bookie/disk.py", "client/event_loop.py", "datasource/options.py", "datasource/connection.py"},
    "socket": {
        "http_endpoint.py",
        "bookie/server.py",
        "bookie/disconnect.py",
        "client/tls_diagnosis.py",
        "zookeeper_connections.py",
    },
    "subprocess": set[str](),
    "asyncio": {
        "client/event_loop.py",
        "client/ledger_audit.py",
        "client/transport.py",
        "client/runner.py",
        "client/connections.py",
        "client/channels.py",
        "bookie/server.py",
        "bookie/sync_thread.py",
        "bookie/long_poll.py",
        "bookie/open_calls.py",
        "bookie/fair_turns.py",
        "bookie/process.py",
        "bookie/availability.py",
        "client/replicator.py",
        "client/replication_worker.py",
    },
    "threading": {
        "ledger_locks.py",
        "http_endpoint.py",
        "logging_setup.py",
        "client/auditor_process.py",
        "client/autorecovery.py",
        "client/event_loop.py",
        "client/write_queue.py",
        "client/log_write_handle.py",
        "client/replication_lock.py",
        "dashboard/collector.py",
        "dashboard/snapshots.py",
        "bookie/sync_thread.py",
        "bookie/ledger_storage.py",
        "bookie/entry_log_files.py",
        "bookie/log_writer.py",
        "bookie/gc_thread.py",
        "bookie/integrity.py",
        "bookie/scrub.py",
        "bookie/registered.py",
        "tls.py",
        "zookeeper.py",
        "metadata_store.py",
        "datasource/connection.py",
        "datasource/job_refresh.py",
        "datasource/ledger_poll.py",
        "datasource/tail.py",
    },
    "time": {
        "http_endpoint.py",
        "logging_setup.py",
        "client/auditor_process.py",
        "client/auditor_znodes.py",
        "client/transport.py",
        "dashboard/collector.py",
        "bookie/process.py",
        "bookie/registered.py",
        "bookie/clocks.py",
        "tls.py",
        "zookeeper.py",
        "zookeeper_connections.py",
        "datasource/followed_log.py",
        "datasource/ledger_poll.py",
        "datasource/replication_job.py",
        "datasource/tail.py",
        "client/decommission.py",
    },
    "random": {"client/transport.py"},
}
"""Modules that touch the machine, and the drivers that may use them."""

LAYERS = {
    "bookie": {"client", "datasource", "dashboard"},
    "client": {"bookie", "datasource", "dashboard"},
    "dashboard": {"bookie", "datasource"},
    "datasource": {"bookie", "dashboard"},
    "": {"bookie", "client", "datasource", "dashboard"},
}
"""Layer (the empty name is the shared modules) → layers that it must not import."""


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file, save for type checking alone."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    skipped = {id(inner) for node in ast.walk(tree) if _is_type_checking(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _is_in(name: str, places: set[str]) -> bool:
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in places)


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_third_party_packages_are_imported_only_where_the_table_says(path: Path) -> None:
    tops = {module.split(".")[0] for module in _imports(path)}
    assert [top for top in sorted(tops & THIRD_PARTY.keys()) if not _is_in(_name(path), THIRD_PARTY[top])] == []


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_modules_that_touch_the_machine_are_imported_only_by_drivers(path: Path) -> None:
    if _is_in(_name(path), JOINERS):
        return
    tops = {module.split(".")[0] for module in _imports(path)}
    assert [top for top in sorted(tops & STANDARD.keys()) if not _is_in(_name(path), STANDARD[top])] == []


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_layers_import_only_what_lies_below_them(path: Path) -> None:
    name = _name(path)
    if _is_in(name, JOINERS):
        return
    layer = name.split("/")[0] if "/" in name and name.split("/")[0] in LAYERS else ""
    wrong = {f"bk_spark.{other}" for other in LAYERS[layer]}
    assert [m for m in sorted(_imports(path)) if any(m == w or m.startswith(w + ".") for w in wrong)] == []


def test_files_are_opened_only_by_the_disk_module_and_the_joiners() -> None:
    allowed = JOINERS | {"bookie/disk.py"}
    users = {
        _name(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    }
    assert [name for name in sorted(users) if not _is_in(name, allowed)] == []


def test_the_tables_name_only_files_that_exist() -> None:
    named = {place for table in (THIRD_PARTY, STANDARD) for places in table.values() for place in places} | JOINERS
    assert [place for place in sorted(named) if not (PACKAGE / place).exists()] == []
