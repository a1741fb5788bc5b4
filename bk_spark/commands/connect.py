"""What the handlers of commands share: connections and security settings."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.identity import check_store
from bk_spark.client.driver.bookies import NOT_REGISTERED
from bk_spark.commands.program.parser import UsageError
from bk_spark.config import (
    BOOKIE_AUTH,
    BOOKIE_AUTH_VARIABLE,
    TLS_NAMES,
    ZOOKEEPER_AUTH,
    ZOOKEEPER_AUTH_VARIABLE,
    ClientConfig,
)
from bk_spark.embedded.join import advice_for, is_embedded, named_directory, resolve, with_own_files
from bk_spark.errors import ConfigError, State
from bk_spark.metadata.registration import open_root
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect_with
from bk_spark.tls.files import warn_of_open_file
from bk_spark.wire.messages import AdministerReply, Status

if TYPE_CHECKING:
    from bk_spark.bookkeeper import BookKeeper

GIVE_METADATA = "give the cluster, zk://host:port/ledgers or embedded:DIR (one of this machine), or set BK_SPARK_METADATA"

MAX_AUTH_CHARACTERS = 65_536
"""How much of a credential's file is read; ZooKeeper's own credentials have one line."""


def metadata_uri(args: argparse.Namespace) -> str:
    """Where the cluster's metadata are; ``embedded:DIR`` is started. Raises UsageError where neither --metadata nor the
    environment names the cluster."""
    check_metadata_given(args)
    return resolve(str(args.metadata))


def check_metadata_given(args: argparse.Namespace) -> None:
    """Raises UsageError, also for what names no cluster. For commands that look at files before they need the cluster."""
    if not args.metadata:
        raise UsageError(f"--metadata is missing: {GIVE_METADATA}")
    try:
        named_directory(args.metadata) if is_embedded(args.metadata) else parse_uri(args.metadata)
    except ConfigError as problem:
        raise UsageError(f"--metadata {args.metadata!r} names no cluster: {problem.remedy}") from None


def client_config(args: argparse.Namespace) -> ClientConfig:
    """A client's settings, with the security options of the command. Raises ConfigError."""
    tls: dict[str, Any] = {name: getattr(args, name) or "" for name in TLS_NAMES}
    return ClientConfig(**tls, zookeeper_auth=zookeeper_auth(args), bookie_auth=bookie_auth(args))


def spark_options(config: ClientConfig) -> dict[str, str]:
    """The same security settings as options of the format ``bookkeeper``."""
    given = {"tlsCa": config.tls_ca, "tlsCertificate": config.tls_certificate, "tlsKey": config.tls_key}
    given |= {"zookeeperAuth": config.zookeeper_auth, "bookieAuth": config.bookie_auth}
    return {name: value for name, value in given.items() if value}


def zookeeper_auth(args: argparse.Namespace) -> str:
    """The credential in the file of ``--zookeeper-auth-file``, or in the environment; empty without both."""
    name = args.zookeeper_auth_file
    if name is None:
        return os.environ.get(ZOOKEEPER_AUTH_VARIABLE, "")
    return _credential("--zookeeper-auth-file", name, ZOOKEEPER_AUTH, "scheme:credential")


def bookie_auth(args: argparse.Namespace) -> str:
    """The same for ``--bookie-auth-file``: the credential for Apache's bookies."""
    name = args.bookie_auth_file
    if name is None:
        return os.environ.get(BOOKIE_AUTH_VARIABLE, "")
    return _credential("--bookie-auth-file", name, BOOKIE_AUTH, "sasl:user:password")


def _credential(option: str, name: str, pattern: str, form: str) -> str:
    """The content of the file of this name. Raises ConfigError, also where the credential was given in its place."""
    try:
        with open(name) as file:
            text = file.read(MAX_AUTH_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError) as problem:
        if re.fullmatch(pattern, name):
            remedy = "it is a credential: write it into a file, and give that one's name, for arguments are seen by everybody"
            raise ConfigError(option, State("(not shown)"), remedy) from None
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise ConfigError(option, name, f"it cannot be read ({why})") from None
    if not text:
        raise ConfigError(option, name, f"it is empty: write {form} into it")
    warn_of_open_file(name)
    return text


@contextmanager
def metadata_store(
    args: argparse.Namespace, config: ClientConfig | None = None, directories: Directories | None = None
) -> Iterator[tuple[ZooKeeperStore, Znodes]]:
    """A connection to the metadata store alone, and the paths of the cluster there.

    ``config`` replaces what the command's security options say. Raises ConfigError where the cluster is not initialised; if
    ``directories``, those that the command is about, hold a bookie, it does not advise to initialise it.
    """
    with store_and_root(args, config) as (store, root):
        if directories is not None:
            check_store(directories, store, root, REAL_DISK)
        yield store, open_root(store, root)


@contextmanager
def store_and_root(args: argparse.Namespace, config: ClientConfig | None = None) -> Iterator[tuple[ZooKeeperStore, str]]:
    """As ``metadata_store``, for a root that need not be initialised."""
    uri = metadata_uri(args)
    _, root = parse_uri(uri)
    config = with_own_files(uri, config or client_config(args))
    with connect_with(uri, config, advice_for(uri)) as store:
        yield store, root


@contextmanager
def bookkeeper(args: argparse.Namespace) -> Iterator[BookKeeper]:
    from bk_spark.bookkeeper import BookKeeper  # logs and topics with it, which a bookie's start does not need

    with BookKeeper(metadata_uri(args), client_config(args)) as client:
        yield client


def accepted(bookie_id: str, reply: AdministerReply) -> AdministerReply:
    """What a bookie answered. Raises ConfigError, with the way out, if it refused or did not answer."""
    if reply.status is Status.OK:
        return reply
    remedy = f"{reply.status.name}: {reply.detail}"
    if NOT_REGISTERED in reply.detail:
        remedy = "no bookie of this id runs: 'bk-spark bookie list' shows the cluster's bookies, and which of them run"
    elif reply.status is Status.UNKNOWN:
        remedy += "; look whether its process runs, and at its log: it may be suspended or overloaded"
    raise ConfigError("the bookie id", bookie_id, remedy)
