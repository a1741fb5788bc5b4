"""``bk-spark`` on Apache's bookies, and Apache's shell on ledgers and logs of ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from tests.interop.apache import IS_ALL, JavaClient, payload

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: a JVM for each command"),
]

Ask = Callable[..., Any]

COUNT = 300


@pytest.fixture
def ask(metadata_uri: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command, which succeeds, and gives the values that it prints as JSON, or its text."""

    def run(*words: object) -> Any:
        capsys.readouterr()
        code = main([*map(str, words), "--metadata", metadata_uri])
        said = capsys.readouterr()
        assert code == 0, said.err
        return [json.loads(line) for line in said.out.splitlines()] if "--json" in words else said.out

    return run


def test_ledgers_of_java_are_listed_shown_read_recovered_and_deleted(java: JavaClient, ask: Ask) -> None:
    ledger_id = java.create(3, 3, 2, "CRC32", "secret")
    java.add(ledger_id, COUNT, 100)
    assert ledger_id in [one["ledger_id"] for one in ask("ledger", "list", "--json")]
    (shown,) = ask("ledger", "show", ledger_id, "--json")
    assert (shown["state"], shown["digest_type"]) == ("OPEN", "CRC32")
    (recovered,) = ask("ledger", "recover", ledger_id, "--password", "secret", "--json")
    assert (recovered["state"], recovered["entries"]) == ("CLOSED", COUNT)
    read = ask("ledger", "read", ledger_id, "--password", "secret", "--json")
    assert len(read) == COUNT, read[:2]
    ask("ledger", "delete", ledger_id)
    assert ledger_id not in [one["ledger_id"] for one in ask("ledger", "list", "--json")]


def test_bookies_of_apache_are_listed_with_their_kind_and_found_healthy(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert {one["kind"] for one in ask("bookie", "list", "--json")} == {"Apache"}
    assert ask("underreplicated", "list", "--json") == []
    cluster = next(one for one in ask("doctor", "--json") if one["check"] == "cluster")
    assert cluster["result"] == "ok"
    assert cluster["detail"].startswith("3 of 3 writable bookies")
    written, read, _ = ask("bench", "--entries", "1000", "--json")
    assert (written["entries"], read["entries"]) == (1000, 1000)


def test_apaches_shell_answers_on_ledgers_and_logs_of_ours(
    client: BookKeeper, metadata_uri: str, apache: BookKeeperCluster
) -> None:
    assert main(["cluster", "init", "--metadata", metadata_uri]) == 0
    with client.create_ledger(3, 3, 2) as writer:
        writer.append_batch([payload(writer.ledger_id, one, 40) for one in range(20)])
    with client.open_log("shown", create=True).open_writer() as leader:
        leader.append(b"one")
    assert f"ledgerID: {writer.ledger_id}" in apache.shell("listledgers")
    assert "lastEntryId=19" in apache.shell("ledgermetadata", "-ledgerid", writer.ledger_id)
    assert apache.shell("listbookies", "-rw").count("127.0.0.1") >= 3
    assert "Eid=19, EntrySize=800" in apache.shell("readledger", "-ledgerid", writer.ledger_id)
    for words in (("listunderreplicated",), ("whoisauditor",), ("lostbookierecoverydelay", "-get"), ("bookieinfo",)):
        apache.shell(*words)
