"""What the cookies of all bookies say to others: which were ever formatted, and when each last gave a sign of life.

A running bookie of ours moves its boot epoch, which is in its cookie, once a minute (``epoch_interval_s``). So the time of the
cookie's last change is its last sign of life, unless an operator repaired the cookie since. Apache's bookies never change
theirs.

Ref: docs/formats.md, "Cookie"; ``bookie/identity/cookie_file.py`` has the whole format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bk_spark.metadata.store import MetadataStore, Versioned, find_children
from bk_spark.metadata.znodes import Znodes

_BOOT = re.compile(rb"^# bk_spark boot: (\d{1,20}) [^ \n]+(?: (\d{1,20}))?$", re.MULTILINE)
_DIRECTORY = re.compile(rb"^# bk_spark directory: [^ \n]+ ([^ \n]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CookieFacts:
    """What a cookie says of its bookie. What is not one of our cookies has neither boot nor sign of life."""

    bookie_id: str
    boot: int | None
    """How often the bookie was started or repaired; None for a bookie of Apache's, and for a damaged cookie."""
    epoch: int | None
    directories: int
    changed_ms: int
    """When the cookie was last changed, by the store's own clock."""

    @property
    def last_seen_ms(self) -> int | None:
        """When the bookie last gave a sign of life; None if unknown, or if it was never started."""
        return self.changed_ms if self.boot else None


def all_cookies(store: MetadataStore, znodes: Znodes) -> dict[str, CookieFacts]:
    """The facts of each bookie with a cookie, by its id, ascending. Raises MetadataUnavailableError."""
    names = find_children(store, znodes.cookies)
    found = store.get_many([znodes.cookie(name) for name in names])
    return {name: facts_of(name, value) for name, value in zip(names, found, strict=True) if value is not None}


def facts_of(bookie_id: str, found: Versioned) -> CookieFacts:
    boot = _BOOT.search(found.value)
    directories = len(set(_DIRECTORY.findall(found.value)))
    if boot is None:
        return CookieFacts(bookie_id, None, None, directories, found.modified_ms)
    return CookieFacts(bookie_id, int(boot[1]), int(boot[2] or 0), directories, found.modified_ms)
