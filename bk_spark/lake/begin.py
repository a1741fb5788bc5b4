"""Gives a log a tier."""

from __future__ import annotations

from dataclasses import replace

from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import BadVersionError, NodeExistsError, find

_TRIES = 50
"""Each further one means that somebody else set the tier at the same moment."""


def check_keeps_rows(head: Head) -> None:
    """Raise ConfigError for a log that is compacted by key."""
    if head.compaction is not None or head.span_ledger is not None:
        remedy = "it is compacted by key, and a table keeps every row: write to a log that is not"
        raise ConfigError("the log to give a tier", head.name, remedy)
    if head.readers:
        remedy = f"{', '.join(head.readers)} read it directly, who would miss what is in its table: remove these readers first"
        raise ConfigError("the log to give a tier", head.name, remedy)


def begin_tier(logs: LogStore, name: str, uid: str, table_uuid: str) -> None:
    """From now on releases that know of no tiers refuse the log. Changes nothing where it has one. Raises NoSuchLogError."""
    paths = logs.names.paths(uid)
    for path in (paths.tier_sections, paths.tier_step):
        logs.store.ensure_path(path)
    begun = TierMark(table_uuid=table_uuid)

    def changed(head: Head) -> Head:
        check_keeps_rows(head)
        return head if head.tier is not None else replace(head, tier=begun)

    logs.names.change_head(name, uid, changed)


def set_settings(logs: LogStore, name: str, uid: str, tier: Tier, seen: Tier | None = None) -> None:
    """Store where the tier lies. Raises ConfigError where the log has a tier at another place: it cannot move.

    ``seen`` are the settings that ``tier`` was made from. Raises MetadataConflictError where they are others by now.
    """
    path = logs.names.paths(uid).tier_settings
    logs.store.ensure_path(path.rpartition("/")[0])
    for _ in range(_TRIES):
        logs.store.sync(path)
        found = find(logs.store, path)
        try:
            if found is None:
                logs.store.create(path, tier.encode())
            else:
                known = Tier.decode(f"the settings of the tier of log '{name}'", found.value)
                check_same_place(name, known, tier)
                if seen is not None and known != seen:
                    raise MetadataConflictError(f"the tier of log '{name}'", "somebody set it meanwhile: try again")
                logs.store.set(path, tier.encode(), found.version)
            return
        except (BadVersionError, NodeExistsError):
            continue
    raise MetadataConflictError(f"the tier of log '{name}'", f"{_TRIES} others set it meanwhile: try again")


def check_same_place(name: str, known: Tier, tier: Tier) -> None:
    """Raises ConfigError."""
    for what, here, there in (("location", known.location, tier.location), ("table", known.table, tier.table)):
        if here != there:
            remedy = f"log '{name}' has its tier at {here}, and a tier cannot move: give that one"
            raise ConfigError(f"the {what} of a tier", there, remedy)
    if known.partition != tier.partition:
        remedy = f"the table of log '{name}' has {', '.join(known.partition) or 'none'}, and that cannot change: give the same"
        raise ConfigError("the partitioning of a tier", ", ".join(tier.partition) or "none", remedy)
