"""A log with a tier, whose steps and sections are made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bk_spark.lake.begin import begin_tier, set_settings
from bk_spark.log.stored.tier_mark import StepName, TierMark
from bk_spark.log.stored.tier_records import TieredLedger, TierSection, TierStep
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommittedLedger, Head
from bk_spark.metadata.store import ANY_VERSION
from tests.unit.log.log_case import Scene


class TierScene(Scene):
    """Ledgers of a log have ten rows and a thousand bytes."""

    def begin(self, name: str, tier_after_s: int = 900) -> str:
        """Gives a log a tier, and returns its uid."""
        uid = self.logs.names.uid(name)
        set_settings(self.logs, name, uid, Tier("file:///lake", f"shop.{name}", tier_after_s=tier_after_s))
        begin_tier(self.logs, name, uid, "table")
        return uid

    def head(self, name: str) -> Head:
        return self.logs.names.head(name, self.logs.names.uid(name))

    def claim(self, name: str, *ledgers: CommittedLedger) -> None:
        """A step that adds the ledgers is under way."""
        mark = self._mark(name)
        step = TierStep(StepName(mark.last.number + 1, "s", ""), ledgers, mark.first, mark.removed)
        self._set(name, replace(mark, boundary=ledgers[-1].ledger_id), step.encode())

    def done(self, name: str, *ledgers: CommittedLedger) -> None:
        """The step is done, and made a section of the ledgers."""
        mark = self._mark(name)
        section = TierSection(tuple(TieredLedger(one, "d") for one in ledgers), ())
        path = self.paths(self.logs.names.uid(name)).tier_section(mark.sections)
        self.store.create(path, section.encode(), make_parents=True)
        last = StepName(mark.last.number + 1, "s", "a")
        self._set(name, replace(mark, boundary=ledgers[-1].ledger_id, sections=mark.sections + 1, last=last), b"")

    def tiered(self, name: str, *sections: Sequence[CommittedLedger]) -> None:
        for ledgers in sections:
            self.done(name, *ledgers)

    def cleared(self, name: str, sections: int) -> None:
        """Bookies do not have the ledgers of the first sections any more."""
        self._set(name, replace(self._mark(name), released=sections, cleared=sections), b"")

    def given_up(self, name: str, sections: int) -> None:
        """A vacuum gives up the first sections."""
        before = self._mark(name)
        self._set(name, replace(before, oldest=sections), b"")
        for number in range(before.oldest, sections):
            self.store.delete(self.paths(self.logs.names.uid(name)).tier_section(number), ANY_VERSION)

    def _mark(self, name: str) -> TierMark:
        mark = self.head(name).tier
        assert mark is not None
        return mark

    def _set(self, name: str, mark: TierMark, step: bytes) -> None:
        uid = self.logs.names.uid(name)
        self.logs.names.change_head(name, uid, lambda head: replace(head, tier=mark))
        self.store.set(self.paths(uid).tier_step, step, ANY_VERSION)
