"""How packets fare on the way from one node to another: pure decisions, which the fabric carries out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]
"""A link: the node that sends, and the one that receives."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes. Probabilities are of each packet."""

    is_cut: bool = False
    is_reset: bool = False
    """The sender of each TCP packet is answered with a reset, as by a firewall, and the packet is dropped."""
    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Added to the delay, drawn for each packet up to this: so packets overtake each other."""
    bytes_per_s: float = 0.0
    """0 for no limit."""


WHOLE = Link()


def combined(links: Iterable[Link]) -> Link:
    """What a packet meets where several faults hold at once."""
    result = WHOLE
    for link in links:
        rates = [rate for rate in (result.bytes_per_s, link.bytes_per_s) if rate]
        result = Link(
            result.is_cut or link.is_cut,
            result.is_reset or link.is_reset,
            1 - (1 - result.loss) * (1 - link.loss),
            1 - (1 - result.duplication) * (1 - link.duplication),
            result.delay_ms + link.delay_ms,
            result.jitter_ms + link.jitter_ms,
            min(rates, default=0.0),
        )
    return result


def between(sources: Iterable[str], targets: Iterable[str]) -> list[Pair]:
    """The links from each of the ones to each of the others."""
    targets = list(targets)
    return [(source, target) for source in sources for target in targets if source != target]


QUEUE_S = 1.0
"""A link that is limited holds as many packets as it moves in this time, and drops the others, as a router does."""


@dataclass(slots=True)
class Passage:
    """A link with what is on its way."""

    link: Link
    free_s: float = 0.0
    """When the last packet that was let in has passed a limited link."""
    counts: dict[str, int] = field(default_factory=dict)
    """Packets by what became of them: passed, delayed, duplicated, lost, crowded out, cut, reset."""

    def arrivals(self, nbytes: int, now_s: float, chosen: random.Random) -> list[float]:
        """When copies of a packet that is sent now arrive: none if it is lost, two if it is duplicated."""
        link = self.link
        if link.is_cut or link.is_reset:
            return self._counted("cut" if link.is_cut else "reset", [])
        if link.loss and chosen.random() < link.loss:
            return self._counted("lost", [])
        sent_s = now_s
        if link.bytes_per_s:
            sent_s = max(now_s, self.free_s) + nbytes / link.bytes_per_s
            if sent_s - now_s > QUEUE_S:
                return self._counted("crowded out", [])
            self.free_s = sent_s
        copies = 2 if link.duplication and chosen.random() < link.duplication else 1
        arrivals = [sent_s + (link.delay_ms + chosen.uniform(0, link.jitter_ms)) / 1000 for _ in range(copies)]
        if copies > 1:
            return self._counted("duplicated", arrivals)
        return self._counted("delayed" if arrivals[0] > now_s else "passed", arrivals)

    def _counted(self, fate: str, arrivals: list[float]) -> list[float]:
        self.counts[fate] = self.counts.get(fate, 0) + 1
        return arrivals
