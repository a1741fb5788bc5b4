"""Where Pulsar keeps its metadata: by default beside BookKeeper's, in the same ZooKeeper."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bk_spark.errors import ConfigError
from bk_spark.metadata.zookeeper import parse_uri

_FORM = re.compile(r"zk://[^/]+((/[^/]+)*)/?")
_PROBE = "/managed-ledgers"


@dataclass(frozen=True, slots=True)
class PulsarRoot:
    """ZooKeeper's servers, and Pulsar's root there without a slash at its end: "" for the servers' own root."""

    hosts: str
    root: str

    @property
    def uri(self) -> str:
        """A URI of the metadata store."""
        return f"zk://{self.hosts}{self.root}{_PROBE}"


def pulsar_root(metadata_uri: str, given: str | None) -> PulsarRoot:
    """``given``, or the parent of BookKeeper's own root. Raises ConfigError.

    zk://zk1:2181/ledgers → the root of zk1:2181; zk://zk1:2181/pulsar/ledgers → /pulsar
    """
    if given is None:
        hosts, root = parse_uri(metadata_uri)
        return PulsarRoot(hosts, root.rsplit("/", 1)[0])
    if not _FORM.fullmatch(given):
        remedy = "write it as zk://host:port[,host:port][/root]: its root is what holds 'managed-ledgers'"
        raise ConfigError("the URI of Pulsar's metadata", given, remedy)
    hosts, root = parse_uri(given.rstrip("/") + _PROBE)
    return PulsarRoot(hosts, root.removesuffix(_PROBE))
