"""The cases of options about security. The cluster has no TLS, and of access control only the root that a case makes."""

from __future__ import annotations

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bk_spark.errors import BookieUnavailableError, ConfigError, MetadataAccessError, NoSuchLogError
from bk_spark.local.security import Authority
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from tests.cluster.datasource.option_cases import CASES, World, case

__all__ = ["CASES"]
"""With those of this module."""


def pems(directory: Path) -> dict[str, str]:
    """The options, with files of an authority that no bookie knows."""
    authority = Authority("elsewhere")
    authority.save(directory / "ca.pem")
    authority.issue(directory / "client")
    return {
        "tlsCa": str(directory / "ca.pem"),
        "tlsCertificate": str(directory / "client.pem"),
        "tlsKey": str(directory / "client.key"),
    }


@case("tlsCa")
def _(world: World) -> None:
    world.write(1)
    with TemporaryDirectory() as directory, pytest.raises(BookieUnavailableError, match="speaks no TLS"):
        world.read(tlsCa=pems(Path(directory))["tlsCa"])


@case("tlsCertificate")
def _(world: World) -> None:
    world.write(1)
    with TemporaryDirectory() as directory:
        files = pems(Path(directory))
        with pytest.raises(ConfigError, match=r"tlsCertificate.*no certificate in PEM form"):
            world.read(**files | {"tlsCertificate": files["tlsKey"]})


@case("tlsKey")
def _(world: World) -> None:
    world.write(1)
    with TemporaryDirectory() as directory:
        files = pems(Path(directory))
        with pytest.raises(ConfigError, match=r"tlsKey.*no private key in PEM form"):
            world.read(**files | {"tlsKey": files["tlsCa"]})


@case("bookieAuth")
def _(world: World) -> None:
    """It is for Apache's bookies; ours do not ask for it."""
    pytest.importorskip("puresasl")
    world.write(1)
    assert len(world.read(bookieAuth="sasl:ann:s3cret")) == 1
    with pytest.raises(ConfigError, match=r"bookieAuth.* is .not shown.: it must be sasl:user:password"):
        world.read(bookieAuth="ann:s3cret")


@case("zookeeperAuth")
def _(world: World) -> None:
    root, auth = f"/protected-{uuid.uuid4().hex}", "digest:ann:s3cret"
    uri = world.direct.uri.replace("/ledgers", root)
    with connect(uri, connect_timeout_s=10.0, session_timeout_s=10.0, auth=auth) as store:
        initialise_cluster(store, Znodes(root))
    with pytest.raises(NoSuchLogError):
        world.read(metadata=uri, zookeeperAuth=auth)
    with pytest.raises(MetadataAccessError):
        world.read(metadata=uri)
