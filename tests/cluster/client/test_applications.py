"""Ledgers that an application owns are recovered and deleted only if somebody names that application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalCluster

OWNED = {"application": b"pulsar"}


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as made:
        yield made


@pytest.mark.parametrize("named", ["", "other"])
def test_the_writer_of_an_owned_ledger_is_not_disturbed(client: BookKeeper, named: str) -> None:
    with client.create_ledger(custom_metadata=OWNED) as writer:
        writer.append(b"one")
        with pytest.raises(ConfigError, match="belongs to the application 'pulsar'"):
            client.open_ledger(writer.ledger_id, of_application=named)
        with pytest.raises(ConfigError, match="belongs to the application 'pulsar'"):
            client.delete_ledger(writer.ledger_id, force=True, of_application=named)
        writer.append(b"two")
        with client.open_ledger(writer.ledger_id, recover=False) as reader:
            assert [one for batch in reader.read(0, 0) for one in batch.column("payload").to_pylist()] == [b"one"]


def test_an_owned_ledger_that_is_closed_opens_like_any_other(client: BookKeeper) -> None:
    with client.create_ledger(custom_metadata=OWNED) as writer:
        writer.append(b"one")
    with client.open_ledger(writer.ledger_id) as reader:
        assert reader.last_add_confirmed == 0


def test_who_names_the_application_takes_its_ledger(
    client: BookKeeper, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id = client.create_ledger(custom_metadata=OWNED).ledger_id
    for action in ("recover", "delete"):
        command = ["ledger", action, str(ledger_id), "--metadata", cluster.metadata_uri]
        assert main(command) == 1
        assert "belongs to the application 'pulsar'" in capsys.readouterr().err
        assert main([*command, "--of-application", "pulsar"]) == 0
