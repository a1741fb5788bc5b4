"""What a caller is told of an error: a status, one sentence, and nothing of the cluster's inside."""

from __future__ import annotations

from dataclasses import fields

import pytest
from grpc import StatusCode

from bk_spark import errors
from bk_spark.errors import BookKeeperError
from bk_spark.gateway.calls.statuses import MAX_SENTENCE, status_of
from tests.unit.errors.test_errors import SAMPLES, _all_classes


@pytest.mark.parametrize("kind", _all_classes())
def test_every_error_becomes_a_status_and_one_line(kind: type[BookKeeperError]) -> None:
    code, sentence = status_of(kind(*[SAMPLES[str(field.type)] for field in fields(kind)]), "DoGet")
    assert code not in (StatusCode.OK, StatusCode.CANCELLED)
    assert sentence
    assert "\n" not in sentence


def test_addresses_of_the_cluster_stay_in_the_log(caplog) -> None:
    for problem in (
        errors.MetadataUnavailableError("zk://zoo1:2181/ledgers", "timeout"),
        errors.BookieUnavailableError(1, 2, ("bookie-7: refused",)),
        errors.MetadataAccessError("the metadata store", "zk://zoo1", "give a credential"),
        errors.StorageError("the file /data/x", "no space"),
        ValueError("/data/x"),
    ):
        code, sentence = status_of(problem, "DoGet of token:a")
        assert code in (StatusCode.UNAVAILABLE, StatusCode.INTERNAL)
        assert not any(word in sentence for word in ("zoo1", "bookie-7", "/data"))
    assert all(word in caplog.text for word in ("zoo1", "bookie-7", "/data/x", "DoGet of token:a"))


def test_a_long_sentence_is_cut_so_that_a_header_takes_it() -> None:
    _, sentence = status_of(errors.NoSuchLogError("x" * 9000), "DoGet")
    assert len(sentence) == MAX_SENTENCE + 1
