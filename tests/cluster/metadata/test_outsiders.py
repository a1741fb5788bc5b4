"""Whoever is no member of a protected cluster, but has a certificate that its servers take: what ZooKeeper lets it see and do.

Each command and each operation of ZooKeeper is tried, and afterwards everything is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.errors import MetadataAccessError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.security import command_options
from bk_spark.metadata.uri import parse_uri
from tests.unit.commands.test_every_command import LEAVES

IDENTITIES = {"none": "", "another password": "digest:bookkeeper:wrong", "another user": "digest:bob:s3cret"}
LOG = "outsiders"

LOCAL = ("local", "local copy", "local accept-copy", "bookie id", "bookie rebuild-index", "bookie sanity")
"""Commands that begin with a directory of this machine; so do those of the group ``inspect``."""
OF_MEMBERS = sorted(words for words in LEAVES if words not in LOCAL and not words.startswith("inspect "))

BESIDE = {
    "token create": ["--never-ends"],
    "grant remove": ["--all"],
    "log set": ["--retention-s", "60"],
}
"""What a command asks for beside its names."""

Everything = dict[str, tuple[bytes, int, int, tuple[object, ...]]]


@pytest.fixture(scope="module")
def filled(secured_cluster: LocalCluster) -> LocalCluster:
    """With something of each kind."""
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        client.append_rows(LOG, pa.table({"x": [1, 2]}), create=True)
        with client.create_ledger() as writer:
            writer.append(b"x")
    options = ["--metadata", secured_cluster.metadata_uri, *command_options(secured_cluster.client_config)]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BK_SPARK_ZOOKEEPER_AUTH", secured_cluster.client_config.zookeeper_auth)
        assert main(["token", "create", LOG, "--never-ends", *options]) == 0
        assert main(["grant", "add", f"token:{LOG}", "--logs", LOG, "--right", "read", *options]) == 0
    return secured_cluster


@pytest.fixture(scope="module")
def everything(filled: LocalCluster) -> Iterator[Everything]:
    """Of each znode its value, the versions of its value and of its access control, and that. It stays so."""
    with_auth = session(filled, filled.client_config.zookeeper_auth)
    try:
        before = lasting(with_auth, parse_uri(filled.metadata_uri)[1])
        yield before
        assert lasting(with_auth, parse_uri(filled.metadata_uri)[1]) == before
    finally:
        with_auth.stop()
        with_auth.close()


def session(cluster: LocalCluster, auth: str) -> KazooClient:
    """ZooKeeper as it is, over TLS."""
    config = cluster.client_config
    scheme, _, credential = auth.partition(":")
    made = KazooClient(
        parse_uri(cluster.metadata_uri)[0],
        auth_data=[(scheme, credential)] if auth else None,
        use_ssl=True,
        ca=config.tls_ca,
        certfile=config.tls_certificate,
        keyfile=config.tls_key,
    )
    made.start()
    return made


def lasting(client: KazooClient, path: str) -> Everything:
    """What a session left, and not what says that one is there."""
    value, stat = client.get(path)
    acl, _ = client.get_acls(path)
    if stat.ephemeralOwner:
        return {}
    if "/cookies/" in path:  # which a bookie changes once a minute
        value, stat = b"", stat._replace(version=0)
    found: Everything = {path: (value, stat.version, stat.aversion, tuple(acl))}
    for name in client.get_children(path):
        found |= lasting(client, f"{path}/{name}")
    return found


@pytest.mark.parametrize("auth", IDENTITIES.values(), ids=list(IDENTITIES))
def test_an_outsider_sees_and_changes_no_znode(filled: LocalCluster, everything: Everything, auth: str) -> None:
    assert len(everything) > 30
    assert any(LOG in path for path in everything)
    client = session(filled, auth)
    try:
        for path in everything:
            tries = {
                "get": client.get_async(path),
                "list": client.get_children_async(path),
                "get ACL": client.get_acls_async(path),
                "set": client.set_async(path, b"mine"),
                "set ACL": client.set_acls_async(path, OPEN_ACL_UNSAFE),
                "create": client.create_async(f"{path}/mine", b"mine"),
                "delete": client.delete_async(path),
            }
            allowed = [what for what, tried in tries.items() if not is_refused(tried)]
            assert (path, allowed) == (path, [])
    finally:
        client.stop()
        client.close()


def is_refused(tried: object) -> bool:
    try:
        tried.get(timeout=30.0)  # type: ignore[attr-defined]
    except NoAuthError:
        return True
    except NotEmptyError:  # of the root: whose it may be removed from is said by its parent, which is nobody's
        return True
    return False


@pytest.mark.parametrize("words", OF_MEMBERS)
def test_an_outsider_has_no_use_of_a_command(
    filled: LocalCluster, everything: Everything, words: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BK_SPARK_ZOOKEEPER_AUTH", raising=False)
    pq.write_table(pa.table({"x": [3]}), tmp_path / "rows.parquet")
    given = {
        "bookie_id": filled.bookies[0].bookie_id,
        "ledger_id": next(name for name in everything if "/L" in name).rpartition("L")[2].lstrip("0") or "0",
        "name": LOG,
        "files": str(tmp_path / "rows.parquet"),
        "identity": f"token:{LOG}",
        "token_name": "mine",
        "--data-dir": str(filled.bookies[0].data_dir if "fix" in words else tmp_path / "data"),
        "--logs": "*",
        "--right": "manage",
        "--before": "0:0",
    }
    asked = words.split()
    for action in LEAVES[words]._actions:
        if not action.option_strings and action.dest in given:
            asked.append(given[action.dest])
        elif action.required:
            asked += [action.option_strings[0], given[action.option_strings[0]]]
    asked += BESIDE.get(words, [])
    assert main([*asked, "--metadata", filled.metadata_uri, *command_options(filled.client_config)]) == 1
    shown = capsys.readouterr()
    assert "ZooKeeper refuses access to" in (shown.out if words == "doctor" else shown.err)


@pytest.mark.parametrize("auth", IDENTITIES.values(), ids=list(IDENTITIES))
def test_an_outsider_has_no_client(filled: LocalCluster, everything: Everything, auth: str) -> None:
    with pytest.raises(MetadataAccessError, match="ZooKeeper refuses access to"):
        BookKeeper(filled.metadata_uri, replace(filled.client_config, zookeeper_auth=auth))
