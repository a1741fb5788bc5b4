"""One client's choices of bookies: placement over who is registered, without those that it has in quarantine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bk_spark.client.operation import ChooseReplacements, ReplacementsChosen
from bk_spark.client.placement import Candidate, Choose, choose_ensemble, choose_replacements
from bk_spark.client.quarantine import Quarantine
from bk_spark.config import ClientConfig
from bk_spark.registration import RegisteredBookie

log = logging.getLogger(__name__)


class EnsembleChoice:
    """Chooses for all operations of a client. ``now_ms`` is the client's clock for deadlines."""

    def __init__(self, config: ClientConfig, choose: Choose) -> None:
        self._config = config
        self._choose = choose
        self._quarantine = Quarantine(config.quarantine_errors, int(config.quarantine_s * 1000))
        self._told_of_racks = False

    def report_failure(self, bookie_id: str, now_ms: int) -> None:
        """A bookie failed a request."""
        if self._quarantine.report(bookie_id, now_ms):
            errors, period_s = self._config.quarantine_errors, self._config.quarantine_s
            log.warning("bookie %s failed %d times: new ensembles do without it for %g s", bookie_id, errors, period_s)

    def ensemble(
        self, registered: Sequence[RegisteredBookie], ensemble_size: int, write_quorum: int, now_ms: int
    ) -> tuple[str, ...]:
        """The bookies of a new ledger. Raises NotEnoughBookiesError."""
        chosen = choose_ensemble(self._candidates(registered, now_ms), ensemble_size, write_quorum, self._choose)
        self._tell_of_racks(chosen.is_spread, chosen.bookies)
        return chosen.bookies

    def replacements(
        self, registered: Sequence[RegisteredBookie], wanted: ChooseReplacements, write_quorum: int, now_ms: int
    ) -> ReplacementsChosen:
        """The answer to a ChooseReplacements."""
        candidates = self._candidates(registered, now_ms)
        chosen = choose_replacements(
            candidates, wanted.ensemble, wanted.slots, wanted.excluded, write_quorum=write_quorum, choose=self._choose
        )
        self._tell_of_racks(chosen.is_spread, tuple(bookie_id for _, bookie_id in chosen.bookies))
        return ReplacementsChosen(wanted.request_id, chosen.bookies, str(chosen.problem or ""))

    def _candidates(self, registered: Sequence[RegisteredBookie], now_ms: int) -> list[Candidate]:
        out = self._quarantine.bookies(now_ms)
        return [Candidate(one.bookie_id, one.rack, one.bookie_id in out, one.read_only) for one in registered]

    def _tell_of_racks(self, is_spread: bool, bookies: tuple[str, ...]) -> None:
        """Once in a client's life: it holds for one ledger after the other until bookies are added."""
        if not is_spread and not self._told_of_racks:
            self._told_of_racks = True
            advice = "start writable bookies in other racks"
            log.warning("with %s some entries have all their copies in one rack: %s", ", ".join(bookies), advice)
