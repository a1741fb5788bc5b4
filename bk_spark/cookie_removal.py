"""Taking a bookie that is not there any more out of the cluster: its cookie goes, and its directories start no more.

Ref: docs/rules.md, protocol rule 48; docs/formats.md, "Cookies".
"""

from __future__ import annotations

from bk_spark.errors import ConfigError
from bk_spark.metadata_store import BadVersionError, MetadataStore, NoNodeError
from bk_spark.registration import lookup
from bk_spark.znodes import Znodes


def remove_cookie(store: MetadataStore, znodes: Znodes, bookie_id: str, version: int | None = None) -> None:
    """Raises ConfigError if there is no such cookie, or the bookie is registered or just starting.

    ``version`` is the cookie's, from before it was made sure that nothing needs the bookie: also if it was started since.
    """
    path = znodes.cookie(bookie_id)
    store.sync(path)  # an absence is acted on: a follower that lags must not invent it
    found = store.get_many([path])[0]
    if found is None:
        raise no_cookie(bookie_id, store)
    address = lookup(store, znodes, bookie_id)
    if address is not None:
        where = f"registered at {address.host}:{address.port}"
        raise ConfigError(f"bookie {bookie_id}", where, "stop it first, or wait for its session to expire")
    try:
        store.delete(path, found.version if version is None else version)
    except (BadVersionError, NoNodeError):
        raise ConfigError(f"bookie {bookie_id}", "started meanwhile", "stop it, and run this again") from None


def no_cookie(bookie_id: str, store: MetadataStore) -> ConfigError:
    """Nothing knows the id: most likely it was mistyped."""
    return ConfigError(
        "the bookie id",
        bookie_id,
        f"there is no cookie of it in {store.uri}: 'bk-spark bookie list' and 'bk-spark ledger show' print bookies' ids",
    )
