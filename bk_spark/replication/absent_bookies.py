"""The bookies that are not registered though something names them, and what is known of since when. For people.

The metadata store keeps no time at which a registration ended. It keeps bounds: a bookie went after its last sign of life, and
before the first of its ledgers was marked. Where neither is known, the time is unknown, and never taken for "just now".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bk_spark.metadata.cookies import CookieFacts
from bk_spark.metadata.under_replication import Mark


@dataclass(frozen=True, slots=True)
class AbsentBookie:
    """A bookie that is not registered."""

    bookie_id: str
    has_cookie: bool
    """False: it was decommissioned or deleted, and only ledgers still name it."""
    is_new: bool
    """Whether it was formatted and never started: it is not lost, and no ledger names it."""
    last_seen_ms: int | None
    """Its last sign of life: it went after this. None if unknown."""
    marked_ms: int | None
    """When the first of its ledgers was marked since then: it had gone before. None if none was."""
    is_lost: bool | None
    """Whether the auditor counts it as lost, so that its ledgers are marked; None if no auditor tells."""
    lost_at_ms: int | None
    """When the auditor will count it as lost unless it comes back; None if it does not wait for it."""


def absent_bookies(
    registered: Collection[str], cookies: Mapping[str, CookieFacts], marks: Iterable[Mark], report: Mapping[str, Any] | None
) -> tuple[AbsentBookie, ...]:
    """Those that a cookie or a mark names and ``registered`` does not hold, by id. ``report`` is the auditor's."""
    marked: dict[str, list[int]] = {}
    for mark in marks:
        for bookie_id in mark.missing:
            marked.setdefault(bookie_id, []).append(mark.marked_ms)
    names = sorted((cookies.keys() | marked.keys()) - set(registered))
    lost, waiting = _reported(report)
    return tuple(
        _absent(name, cookies.get(name), marked.get(name, []), None if lost is None else name in lost, waiting.get(name))
        for name in names
    )


def _absent(
    name: str, cookie: CookieFacts | None, marked_ms: Iterable[int], is_lost: bool | None, lost_at_ms: int | None
) -> AbsentBookie:
    """Marks from before the last sign of life are of an earlier absence, from which the bookie came back."""
    seen_ms = cookie.last_seen_ms if cookie is not None else None
    first_ms = min((at_ms for at_ms in marked_ms if seen_ms is None or at_ms >= seen_ms), default=None)
    is_new = cookie is not None and cookie.boot == 0
    return AbsentBookie(name, cookie is not None, is_new, seen_ms, first_ms, is_lost, lost_at_ms)


def _reported(report: Mapping[str, Any] | None) -> tuple[frozenset[str] | None, dict[str, int]]:
    """What the report says of lost and awaited bookies. It comes from the store, so nothing about its form is certain."""
    lost, waiting = (report or {}).get("lost"), (report or {}).get("waiting")
    names = frozenset(one for one in lost if isinstance(one, str)) if isinstance(lost, list) else None
    times = waiting.items() if isinstance(waiting, dict) else ()
    return names, {name: at_ms for name, at_ms in times if isinstance(at_ms, int)}
