"""A root without a cluster: which roots of the same ZooKeeper have one, for a typing error is likelier than a new cluster."""

from __future__ import annotations

import difflib
import re

from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.metadata.store import MetadataStore, find_children
from bk_spark.metadata.znodes import Znodes

MAX_LOOKED_AT = 200
"""Names that are looked at below one path: ZooKeeper is shared with others, and this is only for an error's text."""

MAX_NAMED = 5

_PLAIN = re.compile(r"[\w./-]+")
"""A root that somebody may want. Others look like options or marks behind the URI: these are typing errors."""


def not_initialised(store: MetadataStore, root: str) -> ConfigError:
    """The error where no cluster is initialised at ``root``."""
    found = other_roots(store, root)
    uris = [store.uri.removesuffix(root) + other for other in found[:MAX_NAMED]]
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    there = f"; there is one at {', '.join(uris)}{more}" if uris else ""
    init = f", or for a new cluster run 'bk-spark cluster init --metadata {store.uri}'" if _PLAIN.fullmatch(root) else ""
    return ConfigError("the metadata URI", store.uri, f"no cluster is initialised there{there}: check the URI{init}")


def other_roots(store: MetadataStore, root: str) -> list[str]:
    """Roots beside ``root``, above it and beside those above it at which there is a cluster, the most alike first.

    Empty where that cannot be seen.
    """
    names = root.split("/")
    parents = ["/".join(names[:length]) for length in range(1, len(names))]
    try:
        roots = {
            f"{parent}/{child}"
            for parent in parents
            for child in find_children(store, parent or "/")[:MAX_LOOKED_AT]
            if child != "zookeeper"
        }
        candidates = sorted(roots - {root})
        layouts = store.get_many([Znodes(candidate).layout_path for candidate in candidates])
    except (ConfigError, MetadataUnavailableError):
        return []
    clusters = [candidate for candidate, layout in zip(candidates, layouts, strict=True) if layout is not None]
    return sorted(clusters, key=lambda one: difflib.SequenceMatcher(None, one, root).ratio(), reverse=True)
