"""Each call of a gateway with tokens, by identities with each right and with none: allowed exactly where it was granted."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.gateway.granted_access import granted_access
from bk_spark.gateway.server import Gateway
from bk_spark.local.cluster import LocalCluster
from tests.cluster.gateway.flight_calls import act, command, connected, put, read, table, until

Call = Callable[[flight.FlightClient, str], object]


def written(caller: flight.FlightClient, log: str, **fields: object) -> None:
    writer, answers = caller.do_put(command(log=log, continuous=True, **fields), table(0).schema)
    with writer:
        writer.write_batch(table(0, 3).to_batches()[0])
        answers.read()


def looked_up(caller: flight.FlightClient, log: str) -> None:
    writer, reader = caller.do_exchange(command(log=log))
    with writer:
        writer.begin(pa.schema([("id", pa.int64())]))
        writer.write_batch(pa.record_batch({"id": pa.array([1])}))
        writer.done_writing()
        reader.read_all()


def tailed(caller: flight.FlightClient, log: str) -> None:
    reader = caller.do_get(flight.Ticket(b'{"log": "%s", "tail": true, "start": "earliest"}' % log.encode()))
    reader.read_chunk()
    reader.cancel()


CALLS: dict[str, tuple[frozenset[str], Call]] = {
    "info": (frozenset({"read"}), lambda caller, log: caller.get_flight_info(command(log=log))),
    "info by path": (
        frozenset({"read"}),
        lambda caller, log: caller.get_flight_info(flight.FlightDescriptor.for_path(log)),
    ),
    "schema": (frozenset({"read"}), lambda caller, log: caller.get_schema(command(log=log))),
    "read": (frozenset({"read"}), lambda caller, log: read(caller, log=log)),
    "tail": (frozenset({"read"}), tailed),
    "look-up": (frozenset({"read"}), looked_up),
    "append": (frozenset({"append"}), lambda caller, log: put(caller, table(0, 3), log=log, rows=3)),
    "write": (frozenset({"append"}), written),
    "append to a new log": (
        frozenset({"append", "manage"}),
        lambda caller, log: put(caller, table(0, 3), log=log, rows=3, create=True),
    ),
    "append with more columns": (
        frozenset({"append", "manage"}),
        lambda caller, log: put(caller, table(0, 3), log=log, rows=3, merge_schema=True),
    ),
    "write with more columns": (frozenset({"append", "manage"}), lambda caller, log: written(caller, log, merge_schema=True)),
    "versions": (frozenset({"read"}), lambda caller, log: act(caller, "versions", log=log)),
    "show": (frozenset({"read"}), lambda caller, log: act(caller, "show", log=log)),
    "create": (frozenset({"manage"}), lambda caller, log: act(caller, "create", log=log)),
    "compact": (frozenset({"manage"}), lambda caller, log: act(caller, "compact", log=log)),
    "truncate": (frozenset({"manage"}), lambda caller, log: act(caller, "truncate", log=log, before=[0, 0])),
    "delete": (frozenset({"manage"}), lambda caller, log: act(caller, "delete", log=log)),
}
"""Which rights each call needs."""

RIGHTS = [
    frozenset(one) for one in ((), ("read",), ("append",), ("manage",), ("append", "manage"), ("read", "append", "manage"))
]


def identity_of(rights: frozenset[str]) -> str:
    return "-".join(sorted(rights)) or "nothing"


@pytest.fixture(scope="module")
def run(cluster: LocalCluster) -> Callable[..., None]:
    def run(*words: str) -> None:
        assert main([*words, "--metadata", cluster.metadata_uri]) == 0

    return run


@pytest.fixture(scope="module")
def mark() -> str:
    return uuid.uuid4().hex[:8]


@pytest.fixture
def created(run: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    def created(name: str) -> str:
        capsys.readouterr()
        run("token", "create", name, "--never-ends")
        return capsys.readouterr().out.split()[-1]

    return created


@pytest.fixture(scope="module")
def guarded(cluster: LocalCluster) -> Iterator[Gateway]:
    with BookKeeper(cluster.metadata_uri) as client:
        access = granted_access(client.metadata_store, client.znodes)
        with Gateway(client, access) as gateway:
            yield gateway
        access.close()


class Bearer(flight.ClientMiddlewareFactory):
    def __init__(self, token: str) -> None:
        self._token = token

    def start_call(self, info: object) -> flight.ClientMiddleware:
        token = self._token

        class Sending(flight.ClientMiddleware):
            def sending_headers(self) -> dict[str, str]:
                return {"authorization": f"Bearer {token}"}

        return Sending()


def caller_of(gateway: Gateway, token: str) -> flight.FlightClient:
    return connected(gateway.port, middleware=[Bearer(token)])


def outcome(call: Call, caller: flight.FlightClient, log: str) -> str:
    """``get_schema`` of pyarrow raises OSError for every status, with its name in it."""
    try:
        call(caller, log)
    except (pa.ArrowException, OSError) as problem:
        return str(problem) if "unauthorized" in str(problem) else f"allowed ({problem})"
    return "allowed"


def test_an_identity_uses_up_no_application_numbers_of_others(
    guarded: Gateway, cluster: LocalCluster, run: Callable[..., None], created: Callable[[str], str], mark: str
) -> None:
    """Theirs are a member's, a Spark stream's and another token's."""
    log, names = f"shared-{mark}", [f"loader-{one}-{mark}" for one in "ab"]
    with BookKeeper(cluster.metadata_uri) as client:
        shared = client.open_log(log, create=True)
        shared.append_rows(table(0, 3), ("nightly", 7))
        callers = []
        for name in names:
            callers.append(caller_of(guarded, created(name)))
            run("grant", "add", f"token:{name}", "--logs", log, "--right", "append")
        for one in callers:
            until(lambda one=one: outcome(CALLS["append"][1], one, log) == "allowed")
        for taken in ("nightly", "spark-stream:1b9d6bcd"):
            assert not put(callers[0], table(0, 3), log=log, rows=3, application=[taken, 2**62])["already"]
        for number in (1, 2):
            for taken in ("nightly", "spark-stream:1b9d6bcd"):
                version = shared.append_rows(table(0, 3), (taken, 7 + number))
                assert version.duplicate_of is None, taken
            answers = [put(one, table(0, 3), log=log, rows=3, application=["own", number])["already"] for one in callers]
            assert answers == [False, False]
        assert put(callers[1], table(0, 3), log=log, rows=3, application=["own", 2])["already"]


@pytest.mark.parametrize("rights", RIGHTS, ids=identity_of)
def test_each_call_is_allowed_exactly_where_all_rights_that_it_needs_were_granted(
    guarded: Gateway,
    cluster: LocalCluster,
    run: Callable[..., None],
    created: Callable[[str], str],
    mark: str,
    rights: frozenset[str],
) -> None:
    name, logs = f"{identity_of(rights)}-{mark}", f"{identity_of(rights)}-{mark}"
    token = created(name)
    if rights:
        run("grant", "add", f"token:{name}", "--logs", f"{logs}.*", "--right", ",".join(sorted(rights)))
    with BookKeeper(cluster.metadata_uri) as client, caller_of(guarded, token) as caller:
        log = f"{logs}.one"
        client.append_rows(log, table(0), create=True, partition_key=["id"])
        client.append_rows(f"other-{log}", table(0), create=True)
        until(lambda: not rights or log in {one.descriptor.path[0].decode() for one in caller.list_flights()})
        for what, (needed, call) in CALLS.items():
            said = outcome(call, caller, log)
            if needed <= rights:
                assert said.startswith("allowed"), what
            else:
                assert f"token:{name} has no right to" in said, (what, said)
                assert f"log '{log}'" in said
            for beyond in (f"other-{log}", f"{logs}", "no-such-log"):
                assert "has no right to" in outcome(call, caller, beyond), (what, beyond)
        seen = {one.descriptor.path[0].decode() for one in caller.list_flights()}
        assert {one for one in seen if mark in one} == ({log} if rights and "manage" not in rights else seen & {log})
        assert client.open_log(f"other-{log}").snapshot().version == 1


def test_nobody_gets_in_without_a_token_or_with_one_that_is_not_whole(
    guarded: Gateway, created: Callable[[str], str], mark: str
) -> None:
    token = created(f"whole-{mark}")
    for wrong in ("", "bks_", token[:-1], token + "A", token.swapcase(), "x" * 10_000):
        with caller_of(guarded, wrong) as caller, pytest.raises(pa.ArrowException) as refused:
            list(caller.list_flights())
        assert token not in str(refused.value)
    with (
        connected(guarded.port) as caller,
        pytest.raises(flight.FlightUnauthenticatedError, match="neither a token"),
    ):
        list(caller.list_flights())
    with caller_of(guarded, token) as caller:
        assert list(caller.list_flights()) == []


def test_a_revoked_token_ends_its_tail_and_its_next_calls(
    guarded: Gateway, cluster: LocalCluster, run: Callable[..., None], created: Callable[[str], str], mark: str
) -> None:
    name, log = f"revoked-{mark}", f"revoked-{mark}.log"
    token = created(name)
    run("grant", "add", f"token:{name}", "--logs", log, "--right", "read")
    with BookKeeper(cluster.metadata_uri) as client, caller_of(guarded, token) as caller:
        client.append_rows(log, table(0), create=True)
        until(lambda: outcome(CALLS["read"][1], caller, log) == "allowed")
        reader = caller.do_get(flight.Ticket(b'{"log": "%s", "tail": true, "start": "earliest"}' % log.encode()))
        assert reader.read_chunk().data.num_rows == 1000
        ended: list[BaseException] = []

        def follow() -> None:
            try:
                while True:
                    reader.read_chunk()
            except BaseException as problem:
                ended.append(problem)

        following = threading.Thread(target=follow)
        following.start()
        run("token", "revoke", name)
        following.join(30)
        assert [type(one) for one in ended] == [flight.FlightUnauthenticatedError]
        with pytest.raises(flight.FlightUnauthenticatedError, match="its token is not known here"):
            list(caller.list_flights())
