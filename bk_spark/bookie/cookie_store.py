"""The cookie's znode: read where its absence matters, and changed by compare-and-set.

Every change brings a new boot number with a random token. So whoever got no answer, or is told that the value was another
one, reads it again and sees by the token whether it was its own change that took effect.

Ref: docs/rules.md, protocol rule 48, storage rules 8 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.bookie.cookie_file import StoredCookie, decode_stored, encode_stored
from bk_spark.errors import CorruptionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata_store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError
from bk_spark.znodes import Znodes


@dataclass(frozen=True, slots=True)
class CookieZnode:
    """The stored cookie as it was read. ``damage`` is set instead of the cookie where it cannot be read."""

    cookie: StoredCookie | None
    version: int
    damage: CorruptionError | None = None


def read_znode(store: MetadataStore, znodes: Znodes, bookie_id: str) -> CookieZnode | None:
    """None if there is none, for certain. Raises FormatVersionError, MetadataUnavailableError."""
    path = znodes.cookie(bookie_id)
    store.sync(path)  # an absence is acted on: a follower that lags must not invent it
    try:
        found = store.get(path)
    except NoNodeError:
        return None
    try:
        return CookieZnode(decode_stored(found.value, path), found.version)
    except CorruptionError as damage:
        return CookieZnode(None, found.version, damage)


def write_znode(store: MetadataStore, znodes: Znodes, cookie: StoredCookie, found: CookieZnode | None) -> None:
    """Put ``cookie`` in the place of what was ``found``, or make it where nothing was.

    Raises MetadataConflictError if another process was faster, MetadataUnavailableError if it may still take effect.
    """
    path, value = znodes.cookie(cookie.bookie_id), encode_stored(cookie)
    try:
        if found is None:
            store.create(path, value, make_parents=True)
        else:
            store.set(path, value, found.version)
    except (BadVersionError, NodeExistsError, NoNodeError):
        if not _is_stored(store, znodes, cookie):
            raise MetadataConflictError(
                f"the cookie of bookie {cookie.bookie_id}",
                "another process starts or repairs the same bookie, or its cookie was deleted: run only one with these "
                "directories or copies of them",
            ) from None
    except MetadataUnavailableError:
        if not _is_stored(store, znodes, cookie):
            raise


def _is_stored(store: MetadataStore, znodes: Znodes, cookie: StoredCookie) -> bool:
    """Whether this very change took effect: then the stored value carries its token."""
    stored = read_znode(store, znodes, cookie.bookie_id)
    return stored is not None and stored.cookie is not None and stored.cookie.boot == cookie.boot
