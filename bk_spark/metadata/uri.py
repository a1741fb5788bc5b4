"""The URI of a metadata store: ``zk://host:port[,host:port]/root[?tls=true]``."""

from __future__ import annotations

import re

from bk_spark.errors import ConfigError
from bk_spark.host_port import HostPort

_URI = re.compile(r"zk://(?P<hosts>[^/?]+)(?P<root>(/[^/?]+)+)(\?(?P<query>.*))?")
_WITHOUT_ROOT = re.compile(r"zk://[^/?]+/?(\?.*)?")
_URI_FORM = "write it as zk://host:port[,host:port]/root, such as zk://127.0.0.1:2181/ledgers or zk://[::1]:2181/ledgers"
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""In paths. Ref: ZooKeeper Programmer's Guide, "The ZooKeeper Data Model"."""
_TLS = {None: False, "tls=false": False, "tls=true": True}
"""By what follows the question mark."""


def parse_uri(uri: str) -> tuple[str, str]:
    """``zk://host:port[,host:port]/root`` → (``host:port,host:port``, ``/root``). Raises ConfigError."""
    match = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if match is None:
        lacks_root = isinstance(uri, str) and _WITHOUT_ROOT.fullmatch(uri)
        problem = "the cluster's root, such as /ledgers, is missing at its end: " if lacks_root else ""
        raise ConfigError("the metadata URI", uri, problem + _URI_FORM)
    try:
        hosts = ",".join(str(HostPort.parse(host)) for host in match["hosts"].split(","))
    except ValueError as problem:
        raise ConfigError("the metadata URI", uri, f"{_URI_FORM} ({problem})") from None
    if _FORBIDDEN.search(match["root"]) or any(name in (".", "..", "zookeeper") for name in match["root"].split("/")):
        raise ConfigError("the root of the metadata URI", uri, f"ZooKeeper does not allow that path: {_URI_FORM}")
    if match["query"] not in _TLS:
        raise ConfigError("the metadata URI", uri, "after the question mark it may have tls=true and nothing else")
    return hosts, match["root"]


def speaks_tls(uri: str) -> bool:
    """Whether connections to the servers of a good URI are over TLS."""
    return _TLS[uri.partition("?")[2] or None]


def with_root(uri: str, root: str) -> str:
    """The same servers, reached in the same way, with another root."""
    query = "?tls=true" if speaks_tls(uri) else ""
    return f"zk://{parse_uri(uri)[0]}{root}{query}"
