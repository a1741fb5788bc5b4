"""Gives a log a tier."""

from __future__ import annotations

from dataclasses import replace

from bk_spark.errors import ConfigError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.metadata.store import BadVersionError, Create, NodeExistsError, NoNodeError, TransactionFailedError


def begin_tier(logs: LogStore, name: str, uid: str, table_uuid: str) -> None:
    """From now on releases that know of no tiers refuse the log. Changes nothing where it has one. Raises NoSuchLogError."""
    paths = logs.names.paths(uid)
    for path in (paths.tier_sections, paths.tier_step):
        logs.store.ensure_path(path)
    begun = TierMark(table_uuid=table_uuid)
    logs.names.change_head(name, uid, lambda head: head if head.tier is not None else replace(head, tier=begun))


def set_settings(logs: LogStore, name: str, uid: str, tier: Tier) -> None:
    """Store where the tier lies. Raises ConfigError where the log has a tier at another place: it cannot move."""
    path = logs.names.paths(uid).tier_settings
    logs.store.ensure_path(path.rpartition("/")[0])
    while True:
        logs.store.sync(path)
        try:
            found = logs.store.get(path)
        except NoNodeError:
            found = None
        try:
            if found is None:
                logs.store.transaction([Create(path, tier.encode())])
            else:
                check_same_place(name, Tier.decode(f"the settings of the tier of log '{name}'", found.value), tier)
                logs.store.set(path, tier.encode(), found.version)
            return
        except (BadVersionError, TransactionFailedError) as problem:
            if isinstance(problem, TransactionFailedError) and not isinstance(problem.reason, NodeExistsError):
                raise


def check_same_place(name: str, known: Tier, tier: Tier) -> None:
    """Raises ConfigError."""
    for what, here, there in (("location", known.location, tier.location), ("table", known.table, tier.table)):
        if here != there:
            remedy = f"log '{name}' has its tier at {here}, and a tier cannot move: give that one"
            raise ConfigError(f"the {what} of a tier", there, remedy)
