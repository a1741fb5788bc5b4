"""The clients in Java and Go of examples/gateway on a real gateway: what each writes, the others and Python read."""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.security import local_tls
from tests.cluster.gateway.flight_calls import command, put, read
from tests.cluster.gateway.test_command import gateway_process
from tests.cluster.gateway.test_rights import Bearer
from tests.interop.apache import IS_ALL
from tests.interop.gateway_clients import GO, JAVA, GatewayAddress, GatewayProgram, RefusedError, built

pytestmark = [
    pytest.mark.skipif(not IS_ALL, reason="make interop: a client in Go that is built from its modules"),
    pytest.mark.timeout(1800),
]

LANGUAGES = pytest.mark.parametrize("language", [JAVA, GO])

RIDES = pa.schema(
    {
        "ride": pa.int64(),
        "km": pa.float64(),
        "city": pa.string(),
        "began": pa.timestamp("us", "UTC"),
        "fare": pa.decimal128(10, 2),
        "stops": pa.list_(pa.list_(pa.int64())),
    }
)
EDGES = [
    {
        "ride": -(2**63),
        "km": 5e-324,
        "city": "",
        "began": datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
        "fare": Decimal("-99999999.99"),
        "stops": [],
    },
    {
        "ride": 2**63 - 1,
        "km": -1.7976931348623157e308,
        "city": 'Łódź, "日本"\n🚲',
        "began": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        "fare": Decimal("0.01"),
        "stops": [None, [None, -1], []],
    },
    dict.fromkeys(RIDES.names),
]
"""What Python writes."""


def written_by_the_examples(number: int) -> list[dict[str, Any]]:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rides = [
        {
            "ride": ride,
            "km": ride + 0.5,
            "city": city,
            "began": noon + timedelta(minutes=ride),
            "fare": ride + Decimal("0.25"),
            "stops": [[ride, None], []],
        }
        for ride, city in ((10 * number, "Rome"), (10 * number + 1, "Tromsø"))
    ]
    return [*rides, {**dict.fromkeys(RIDES.names), "ride": 10 * number + 2}]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GatewayProgram]:
    """Builds each once."""
    programs: dict[str, GatewayProgram] = {}

    def program(language: str) -> GatewayProgram:
        if language not in programs:
            try:
                programs[language] = built(language, tmp_path_factory.mktemp(language))
            except SkippedError as reason:
                pytest.skip(f"a client in {language.title()} is not to be had: {reason}")
        return programs[language]

    return program


class Tokens:
    """Of callers who may read and append to the logs ``<mark>.*``, read them, or nothing."""

    def __init__(self, metadata_uri: str) -> None:
        self.mark = uuid.uuid4().hex[:8]
        self._metadata = ["--metadata", metadata_uri]
        self.both = self._created("both", "read,append")
        self.reader = self._created("reader", "read")
        self.stranger = self._created("stranger", "")

    def _created(self, name: str, rights: str) -> str:
        name, printed = f"{name}-{self.mark}", io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert main(["token", "create", name, "--never-ends", *self._metadata]) == 0
        if rights:
            granted = ["grant", "add", f"token:{name}", "--logs", f"{self.mark}.*", "--right", rights]
            assert main([*granted, *self._metadata]) == 0
        return printed.getvalue().split()[-1]


@pytest.fixture(scope="module")
def tokens(cluster: LocalCluster) -> Tokens:
    return Tokens(cluster.metadata_uri)


@pytest.fixture(scope="module")
def gateway(cluster: LocalCluster, tokens: Tokens, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAddress]:
    """With TLS. It begins with all tokens and grants."""
    served = local_tls(tmp_path_factory.mktemp("gateway") / "tls").server
    options = ["--serve-certificate", served.certificate, "--serve-key", served.key]
    with gateway_process(cluster.metadata_uri, *options) as (_, port):
        yield GatewayAddress(f"grpc+tls://127.0.0.1:{port}", Path(served.ca))


@pytest.fixture
def log(cluster: LocalCluster, tokens: Tokens) -> Iterator[str]:
    """An empty log that the tokens are about."""
    name = f"{tokens.mark}.{uuid.uuid4().hex}"
    with BookKeeper(cluster.metadata_uri) as client:
        log = client.open_log(name, create=True)
        yield name
        log.delete()


@contextlib.contextmanager
def python(gateway: GatewayAddress, token: str) -> Iterator[flight.FlightClient]:
    assert gateway.authority is not None
    authority = gateway.authority.read_bytes()
    with flight.connect(gateway.uri, tls_root_certs=authority, middleware=[Bearer(token)]) as caller:
        yield caller


@LANGUAGES
def test_rows_that_a_client_appended_are_read_by_python_and_by_the_other_client(
    gateway: GatewayAddress, tokens: Tokens, log: str, program: Callable[[str], GatewayProgram], language: str
) -> None:
    other = {JAVA: GO, GO: JAVA}[language]
    answer = program(language).append(gateway, tokens.both, log, 7)
    assert (answer["rows"], answer["already"]) == (3, False)
    with python(gateway, tokens.reader) as caller:
        assert read(caller, log=log).equals(pa.Table.from_pylist(written_by_the_examples(7), RIDES))
    assert program(other).read(gateway, tokens.reader, log) == written_by_the_examples(7)


@LANGUAGES
def test_rows_that_python_appended_are_read_by_a_client_with_all_their_values(
    gateway: GatewayAddress, tokens: Tokens, log: str, program: Callable[[str], GatewayProgram], language: str
) -> None:
    with python(gateway, tokens.both) as caller:
        for _ in range(4):
            put(caller, pa.Table.from_pylist(EDGES, RIDES), log=log, rows=len(EDGES))
        assert len(caller.get_flight_info(command(log=log, endpoints=4)).endpoints) > 1
    assert program(language).read(gateway, tokens.reader, log) == 4 * EDGES


@LANGUAGES
def test_an_append_that_a_client_repeats_is_there_once(
    gateway: GatewayAddress, tokens: Tokens, log: str, program: Callable[[str], GatewayProgram], language: str
) -> None:
    answers = [program(language).append(gateway, tokens.both, log, number) for number in (1, 1, 2)]
    assert [answer["already"] for answer in answers] == [False, True, False]
    with python(gateway, tokens.reader) as caller:
        assert read(caller, log=log).to_pylist() == [*written_by_the_examples(1), *written_by_the_examples(2)]


@LANGUAGES
def test_a_client_says_the_sentence_with_which_the_gateway_refused_it(
    cluster: LocalCluster,
    gateway: GatewayAddress,
    tokens: Tokens,
    log: str,
    program: Callable[[str], GatewayProgram],
    language: str,
) -> None:
    refused = {JAVA: "UNAUTHORIZED", GO: "PermissionDenied"}[language]
    unknown = {JAVA: "UNAUTHENTICATED", GO: "Unauthenticated"}[language]
    client = program(language)
    with pytest.raises(RefusedError) as no_append:
        client.append(gateway, tokens.reader, log, 1)
    assert str(no_append.value).startswith(f"{refused}: token:reader-{tokens.mark} has no right to append")
    assert log in str(no_append.value)
    with pytest.raises(RefusedError) as no_read:
        client.read(gateway, tokens.stranger, log)
    assert str(no_read.value).startswith(f"{refused}: token:stranger-{tokens.mark} has no right to read")
    with pytest.raises(RefusedError) as no_token:
        client.read(gateway, tokens.both + "x", log)
    assert str(no_token.value).startswith(f"{unknown}: ")
    with BookKeeper(cluster.metadata_uri) as bookkeeper:
        assert bookkeeper.open_log(log).snapshot().version == 0


def test_the_clients_use_a_gateway_without_tls(
    cluster: LocalCluster, log: str, program: Callable[[str], GatewayProgram]
) -> None:
    with gateway_process(cluster.metadata_uri, "--open") as (_, port):
        plain = GatewayAddress(f"grpc://127.0.0.1:{port}")
        assert program(JAVA).append(plain, "", log, 1)["rows"] == 3
        assert program(GO).read(plain, "", log) == written_by_the_examples(1)
        assert program(JAVA).read(plain, "", log) == written_by_the_examples(1)
