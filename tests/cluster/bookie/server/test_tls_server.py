"""A bookie's server with TLS, in this process: whom it takes, and that its files change under it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bk_spark.errors import ConfigError
from bk_spark.local.security import Authority
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.tls import grpc_credentials
from bk_spark.wire.codec import encode_describe_request
from tests.cluster.bookie.served import DEADLINE_S, Served

Credentials = grpc.ChannelCredentials


@pytest.fixture(params=["mutual", "one-sided"])
def served(harness, authority: Authority, tmp_path: Path, request, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """``one-sided``: without authorities of its own."""
    monkeypatch.setattr(grpc_credentials, "LOOK_S", 0.0)
    harness.config = dataclasses.replace(
        harness.config,
        tls_ca=str(tmp_path / "ca.pem") if request.param == "mutual" else "",
        tls_certificate=str(tmp_path / "bookie.pem"),
        tls_key=str(tmp_path / "bookie.key"),
    )
    made = Served(harness)
    yield made
    made.close()


def files(directory: Path, *, client: str | None = "client") -> Credentials:
    """What stands in the files now."""
    ca = (directory / "ca.pem").read_bytes()
    if client is None:
        return grpc.ssl_channel_credentials(ca)
    return grpc.ssl_channel_credentials(ca, *((directory / f"{client}.{kind}").read_bytes() for kind in ("key", "pem")))


def is_served(served: Served, credentials: Credentials | None) -> bool:
    target, options = f"127.0.0.1:{served.port}", [("grpc.use_local_subchannel_pool", 1)]
    open_channel = grpc.insecure_channel(target, options) if credentials is None else None
    with open_channel or grpc.secure_channel(target, credentials, options) as channel:
        try:
            BookieStub(channel).Describe(encode_describe_request(""), timeout=DEADLINE_S)
        except grpc.RpcError as failure:
            if failure.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
    return True


def test_who_is_taken(served: Served, tmp_path: Path) -> None:
    is_mutual = bool(served.harness.config.tls_ca)
    Authority("another").issue(tmp_path / "stranger")
    assert is_served(served, files(tmp_path))
    assert is_served(served, files(tmp_path, client=None)) is not is_mutual
    assert is_served(served, files(tmp_path, client="stranger")) is not is_mutual
    assert not is_served(served, None)


def test_files_that_change_hold_for_the_next_connection_and_the_one_that_stands_goes_on(
    served: Served, authority: Authority, tmp_path: Path
) -> None:
    old, counts = files(tmp_path), itertools.count(1)
    with grpc.secure_channel(f"127.0.0.1:{served.port}", old, [("grpc.use_local_subchannel_pool", 1)]) as standing:
        stub = BookieStub(standing)
        stub.Describe(encode_describe_request(""), timeout=DEADLINE_S)
        for _ in range(2):
            new = Authority(f"new {next(counts)}")
            new.save(tmp_path / "ca.pem")
            new.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
            new.issue(tmp_path / "client")
            assert is_served(served, files(tmp_path))
            assert not is_served(served, old)
            stub.Describe(encode_describe_request(""), timeout=DEADLINE_S)


def test_a_half_written_file_leaves_the_former_one_in_use(served: Served, authority: Authority, tmp_path: Path) -> None:
    good, whole = files(tmp_path), (tmp_path / "bookie.pem").read_bytes()
    (tmp_path / "bookie.pem").write_bytes(whole[: len(whole) // 2])
    assert is_served(served, good)
    authority.issue(tmp_path / "bookie", hosts=["127.0.0.1"], days=-1)
    assert not is_served(served, good)


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key"])
def test_a_bookie_does_not_serve_with_files_that_it_cannot_use(
    harness, authority: Authority, tmp_path: Path, name: str
) -> None:
    named = {"tls_certificate": str(tmp_path / "bookie.pem"), "tls_key": str(tmp_path / "bookie.key")}
    harness.config = dataclasses.replace(harness.config, **named | {name: str(tmp_path / "missing")})
    with pytest.raises(ConfigError, match=rf"{name} \(.*\) is '.*missing': it cannot be read"):
        Served(harness)
