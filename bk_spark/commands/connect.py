"""Connections that the commands open."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import ConfigError
from bk_spark.znodes import Znodes
from bk_spark.zookeeper import ZooKeeperStore, connect, parse_uri


def metadata_uri(args: argparse.Namespace) -> str:
    """Raises ConfigError where neither --metadata nor the environment names the cluster."""
    if not args.metadata:
        raise ConfigError("--metadata", args.metadata, "give the cluster, zk://host:port/ledgers, or set BK_SPARK_METADATA")
    return str(args.metadata)


@contextmanager
def metadata_store(args: argparse.Namespace) -> Iterator[tuple[ZooKeeperStore, Znodes]]:
    """The metadata store alone, also of a root that is not initialised."""
    uri = metadata_uri(args)
    config = ClientConfig()
    _, root = parse_uri(uri)
    with connect(uri, connect_timeout_s=config.connect_timeout_s, session_timeout_s=config.session_timeout_s) as store:
        yield store, Znodes(root)


@contextmanager
def bookkeeper(args: argparse.Namespace) -> Iterator[BookKeeper]:
    with BookKeeper(metadata_uri(args)) as client:
        yield client
