"""What a caller is told of an error: a status, one sentence, and nothing of the cluster's inside."""

from __future__ import annotations

from dataclasses import fields

import pytest
from grpc import StatusCode

from bk_spark import errors
from bk_spark.errors import BookKeeperError
from bk_spark.gateway.calls.statuses import MAX_SENTENCE, status_of
from bk_spark.gateway.calls.unexpected_errors import MOST_KINDS, TELL_S, UnexpectedErrors
from tests.unit.errors.test_errors import SAMPLES, _all_classes

UNEXPECTED = UnexpectedErrors(lambda: 0.0)


@pytest.mark.parametrize("kind", _all_classes())
def test_every_error_becomes_a_status_and_one_line(kind: type[BookKeeperError]) -> None:
    code, sentence = status_of(
        kind(*[SAMPLES[str(field.type)] for field in fields(kind)]), "DoGet", UnexpectedErrors(lambda: 0.0)
    )
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
        code, sentence = status_of(problem, "DoGet of token:a", UNEXPECTED)
        assert code in (StatusCode.UNAVAILABLE, StatusCode.INTERNAL)
        assert not any(word in sentence for word in ("zoo1", "bookie-7", "/data"))
    assert all(word in caplog.text for word in ("zoo1", "bookie-7", "/data/x", "DoGet of token:a"))


def test_a_long_sentence_is_cut_so_that_a_header_takes_it() -> None:
    _, sentence = status_of(errors.NoSuchLogError("x" * 9000), "DoGet", UNEXPECTED)
    assert len(sentence) == MAX_SENTENCE + 1


def test_an_unexpected_error_that_repeats_has_one_traceback_a_minute_and_is_counted(caplog) -> None:
    now_s = 0.0
    unexpected = UnexpectedErrors(lambda: now_s)
    for _ in range(5):
        unexpected.tell("DoGet", _raised(ValueError("x")))
    unexpected.tell("DoGet", _raised(KeyError("y")))
    assert [record.exc_info[0] for record in caplog.records] == [ValueError, KeyError]
    now_s = TELL_S
    unexpected.tell("DoPut", _raised(ValueError("z")))
    assert caplog.messages[2:] == ["DoPut failed by an error that nobody expected; 4 more like it since the last traceback"]


def test_kinds_of_unexpected_errors_are_remembered_up_to_a_bound() -> None:
    unexpected = UnexpectedErrors(lambda: 0.0)
    for number in range(3 * MOST_KINDS):
        unexpected.tell("DoGet", type(f"Error{number}", (Exception,), {})())
    assert len(unexpected._told) <= MOST_KINDS


def _raised(problem: Exception) -> Exception:
    try:
        raise problem
    except Exception as raised:
        return raised
