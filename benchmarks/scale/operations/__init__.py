"""The operations, by subject."""

from __future__ import annotations

import importlib

MODULES = ("clients", "dashboards", "logs", "streams", "many", "bookies", "auditors", "cleaning")
"""In the order in which they run: what changes the cluster most comes last."""


def load() -> None:
    """Have all of them in ``OPERATIONS``."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
