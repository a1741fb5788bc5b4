"""A reader that recovers a topic's open ledger, as ours never does, is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed.measure import SkippedError
from bk_spark import BookKeeper
from tests.soak.pulsar.broker import CLUSTER
from tests.soak.pulsar.managed_ledgers import ledgers_of
from tests.soak.topics.fences import look, partition_names
from tests.soak.topics.stage import stage

TOPIC = "persistent://topics/proof/taken"
MESSAGES, MESSAGE_BYTES = 100, 100


@pytest.mark.timeout(600)
def test_a_ledger_that_somebody_else_recovers_is_found_in_its_metadata_and_in_the_brokers_log(tmp_path: Path) -> None:
    try:
        with stage(tmp_path, {}) as on, BookKeeper(on.metadata_uri) as bookkeeper:
            on.client.set_up(CLUSTER)
            on.client.create(TOPIC, 0)
            on.client.fill(TOPIC, MESSAGES, MESSAGE_BYTES)
            [partition] = partition_names(TOPIC, 0)
            assert not look(bookkeeper, [partition], on.broker.log).violations
            [info] = ledgers_of(bookkeeper.metadata_store, partition)
            bookkeeper.open_ledger(info.ledger_id, recover=True, of_application="pulsar").close()
            on.client.fill(TOPIC, MESSAGES, MESSAGE_BYTES)
            found = look(bookkeeper, [partition], on.broker.log).violations
    except SkippedError as reason:
        pytest.skip(f"a Pulsar broker is not to be had: {reason}")
    assert any("changed 2 times" in one for one in found), found
    assert any("the broker's log" in one for one in found), found
