"""Catalogs by pyiceberg, of which one over REST answers in time or fails: pyiceberg itself would wait for ever."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config

_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S = 5.0, 60.0
"""A catalog writes a file of its own before it answers a commit. Of one whose answer comes later nothing is known."""


def loaded(name: str, properties: Mapping[str, str]) -> Catalog:
    """As ``load_catalog``: also with what the process has for the name in its environment and in ``.pyiceberg.yaml``."""
    every: dict[str, Any] = dict(merge_config(Config().get_catalog_config(name) or {}, dict(properties)))
    kind = "rest" if str(every.get("uri", "")).startswith("http") and PY_CATALOG_IMPL not in every else ""
    is_rest = str(every.get("type") or kind).lower() == "rest"
    return _RestCatalog(name, **every) if is_rest else load_catalog(name, **properties)


class _RestCatalog(RestCatalog):
    def _create_session(self) -> Any:
        session: Any = super()._create_session()
        session.request = partial(session.request, timeout=(_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S))
        return session
