"""What a command says of a bookie that refuses, or does not answer."""

from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from bk_spark.client.driver.bookies import NOT_REGISTERED
from bk_spark.client.driver.connections import describe_failure
from bk_spark.commands.connect import accepted
from bk_spark.errors import ConfigError
from bk_spark.wire.messages import AdministerReply, Status


@pytest.mark.parametrize(
    ("status", "detail", "says"),
    [
        (Status.UNKNOWN, f"no answer: {NOT_REGISTERED}", "no bookie of this id runs: 'bk-spark bookie list' shows"),
        (
            Status.UNKNOWN,
            "no answer: late",
            "UNKNOWN: no answer: late; look whether its process runs",
        ),
        (Status.READ_ONLY, "full", "READ_ONLY: full$"),
    ],
)
def test_a_bookie_that_does_not_do_it_is_named_with_the_way_out(status: Status, detail: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"the bookie id is 'nope': {says}"):
        accepted("nope", AdministerReply(status, detail=detail))


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ("Deadline Exceeded", "deadline exceeded"),
        ("", "deadline exceeded"),
        ("late", "deadline exceeded: late"),
    ],
)
def test_what_a_call_failed_of_is_said_once(details: str, says: str) -> None:
    assert describe_failure(AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, Metadata(), Metadata(), details)) == says
