"""``bk-spark gateway`` as a program: it serves until it is told to end, and another one goes on where it was killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bk_spark import cli
from tests.budget import IS_SOAK
from tests.cluster.gateway.flight_calls import act, connected, put, read, table

KILLS = 20 if IS_SOAK else 2


@contextmanager
def gateway_process(uri: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its port."""
    command = [sys.executable, "-m", "bk_spark.cli", "gateway", "--metadata", uri, "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        finally:
            process.kill()


def test_the_gateway_command_serves_until_it_is_told_to_end(cluster, name) -> None:
    with gateway_process(cluster.metadata_uri, "--open") as (process, port), connected(port) as caller:
        put(caller, table(0), log=name, create=True, rows=1000)
        assert read(caller, log=name).num_rows == 1000
        process.terminate()
        assert process.wait(30) == 0


def test_what_a_killed_gateway_acknowledged_is_there_once_and_what_is_repeated_at_another_is_not_doubled(cluster, name) -> None:
    chance = random.Random(1)
    with gateway_process(cluster.metadata_uri, "--open") as (_, other_port), connected(other_port) as other:
        act(other, "create", log=name)
        number = 0
        for _ in range(KILLS):
            with gateway_process(cluster.metadata_uri, "--open") as (process, port), connected(port) as caller:
                put(caller, table(number * 1000), log=name, rows=1000, application=["loader", number + 1])
                number += 1
                threading.Timer(0.5 + chance.random(), process.kill).start()
                deadline = time.monotonic() + 60
                while process.poll() is None:
                    assert time.monotonic() < deadline
                    rows = table(number * 1000)
                    with suppress(flight.FlightError, pa.ArrowException):
                        put(caller, rows, log=name, rows=1000, application=["loader", number + 1])
                    put(other, rows, log=name, rows=1000, application=["loader", number + 1])
                    number += 1
        assert read(other, log=name)["id"].to_pylist() == list(range(number * 1000))


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--open --host 0.0.0.0", "is not this machine alone, and there is no TLS"),
        ("--open --serve-key k", "--serve-certificate and --serve-key are given together"),
        ("--open --serve-client-ca c", "--serve-client-ca needs --serve-certificate"),
        ("--open --max-calls 0", "max_calls"),
        ("--open --silence-s -1", "silence_s"),
    ],
)
def test_a_gateway_that_would_be_open_to_strangers_or_has_wrong_settings_does_not_start(typed, says, capsys) -> None:
    with suppress(SystemExit):
        cli.main(["gateway", "--metadata", "zk://127.0.0.1:1/ledgers", *typed.split()])
    assert says in capsys.readouterr().err


def test_callers_with_certificates_are_named_by_them_and_others_do_not_get_in(secured_cluster, name, tmp_path: Path) -> None:
    config = secured_cluster.client_config
    auth = tmp_path / "auth"
    auth.write_text(str(config.zookeeper_auth))
    own = ["--tls-ca", config.tls_ca, "--tls-certificate", config.tls_certificate, "--tls-key", config.tls_key]
    served = Path(config.tls_ca).with_name("bookie")  # it names this host
    serve = ["--serve-client-ca", config.tls_ca, "--serve-certificate", f"{served}.pem", "--serve-key", f"{served}.key"]
    options = ["--open", *own, *serve, "--zookeeper-auth-file", str(auth)]
    authority, chain, key = (Path(one).read_bytes() for one in (config.tls_ca, config.tls_certificate, config.tls_key))
    with gateway_process(secured_cluster.metadata_uri, *map(str, options)) as (_, port):
        uri = f"grpc+tls://127.0.0.1:{port}"
        with flight.connect(uri, tls_root_certs=authority, cert_chain=chain, private_key=key) as caller:
            put(caller, table(0), log=name, create=True, rows=1000)
        with flight.connect(uri, tls_root_certs=authority) as stranger, pytest.raises(flight.FlightUnavailableError):
            list(stranger.list_flights())
