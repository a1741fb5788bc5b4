"""Where Pulsar keeps its metadata: by default beside BookKeeper's, in the same ZooKeeper."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bk_spark.errors import ConfigError
from bk_spark.metadata.uri import parse_uri, with_root

_FORM = re.compile(r"(?P<root>zk://[^/?]+((/[^/?]+)*))/?(?P<query>\?.*)?")
_PROBE = "/managed-ledgers"


@dataclass(frozen=True, slots=True)
class PulsarRoot:
    """Pulsar's root in ZooKeeper without a slash at its end: "" for the servers' own root."""

    uri: str
    """A URI of the metadata store, in whose root ``root`` is."""
    root: str

    def is_beside(self, metadata_uri: str) -> bool:
        """Whether the servers are those of ``metadata_uri``, reached in the same way."""
        return self.uri == with_root(metadata_uri, f"{self.root}{_PROBE}")


def pulsar_root(metadata_uri: str, given: str | None) -> PulsarRoot:
    """``given``, or the parent of BookKeeper's own root. Raises ConfigError.

    zk://zk1:2181/ledgers → the root of zk1:2181; zk://zk1:2181/pulsar/ledgers → /pulsar
    """
    if given is None:
        _, root = parse_uri(metadata_uri)
        parent = root.rsplit("/", 1)[0]
        return PulsarRoot(with_root(metadata_uri, f"{parent}{_PROBE}"), parent)
    form = _FORM.fullmatch(given)
    if form is None:
        remedy = "write it as zk://host:port[,host:port][/root]: its root is what holds 'managed-ledgers'"
        raise ConfigError("the URI of Pulsar's metadata", given, remedy)
    uri = f"{form['root']}{_PROBE}{form['query'] or ''}"
    _, root = parse_uri(uri)
    return PulsarRoot(with_root(uri, root), root.removesuffix(_PROBE))
