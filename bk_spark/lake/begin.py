"""Gives a log a tier."""

from __future__ import annotations

from dataclasses import replace

from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.tier_mark import TierMark


def begin_tier(logs: LogStore, name: str, uid: str) -> None:
    """From now on releases that know of no tiers refuse the log. Changes nothing where it has one. Raises NoSuchLogError."""
    paths = logs.names.paths(uid)
    for path in (paths.tier_sections, paths.tier_step):
        logs.store.ensure_path(path)
    logs.names.change_head(name, uid, lambda head: head if head.tier is not None else replace(head, tier=TierMark()))
