"""A fuzzer over every message and every file format. ``python -m tests.soak.fuzz``; a short form runs with the tests."""

from __future__ import annotations

from functools import cache

from tests.soak.fuzz import (
    apache_server_targets,
    apache_targets,
    gateway_targets,
    metadata_targets,
    pulsar_targets,
    row_targets,
    served_target,
    storage_targets,
    text_targets,
    wire_targets,
)
from tests.soak.fuzz.engine import Target

_MODULES = (
    wire_targets,
    apache_targets,
    apache_server_targets,
    served_target,
    row_targets,
    storage_targets,
    metadata_targets,
    pulsar_targets,
    text_targets,
    gateway_targets,
)


@cache
def every_target() -> dict[str, Target]:
    """By name. What a target needs, such as a server, it starts when its seeds are asked for."""
    return {target.name: target for module in _MODULES for target in module.targets()}
