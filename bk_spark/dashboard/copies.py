"""Whether the marks are all ledgers that lack copies. Only an auditor marks: without one, no mark tells nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MarksKnown:
    """How far the marks can be relied on."""

    why_not: str
    """Why there may be ledgers that lack copies without a mark; empty if the last audit covers every bookie that is gone."""
    audited_ms: int | None
    """When the auditor last finished a look at all ledgers; None if that is not known."""


def marks_known(enabled: bool, auditor: str | None, report: Mapping[str, Any] | None) -> MarksKnown:
    """``report`` is the auditor's; it comes from the store, so nothing about its form is certain."""
    audit = (report or {}).get("last_audit")
    ended_ms = audit.get("ended_ms") if isinstance(audit, dict) else None
    audited_ms = ended_ms if isinstance(ended_ms, int) else None
    return MarksKnown(_why_not(enabled, auditor, report, audited_ms), audited_ms)


def _why_not(enabled: bool, auditor: str | None, report: Mapping[str, Any] | None, audited_ms: int | None) -> str:
    if not enabled:
        return "AutoRecovery is switched off"
    if auditor is None:
        return "no auditor runs"
    if report is None:
        return "the auditor has not told what it sees"
    if audited_ms is None:
        return "the auditor has not looked at all ledgers yet"
    if waiting := _names(report.get("waiting")):
        return f"the auditor waits for {_some(waiting)} to come back"
    # An older auditor does not tell which of the lost ones it has audited.
    if unaudited := _names(report.get("unaudited", report.get("lost"))):
        return f"the auditor has not looked for all ledgers of {_some(unaudited)} yet"
    return ""


def _names(found: object) -> list[str]:
    return [str(one) for one in found] if isinstance(found, (list, dict)) else []


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} bookies"
