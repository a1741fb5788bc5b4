"""A cluster's metadata in memory, for each test."""

from tests.unit.log.log_world import world

__all__ = ["world"]
