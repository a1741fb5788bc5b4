"""The boot epoch of a running bookie, which shows that a disk was restored from a snapshot of the current boot.

A boot number moves only when a bookie starts, and a bookie may run for months. So the cookie's znode also holds an **epoch**
of the boot, and a running bookie moves it, every ``epoch_interval_s``, by steps each durable before the next:

1. ``boot`` of every root: the next epoch as pending.
2. The cookie's znode, by compare-and-set: that epoch.
3. ``boot`` of every root: that epoch as confirmed.

A root fits at the next start if the znode's epoch is its confirmed or its pending one. What a crash leaves:

- After step 1, in some roots or in all: the znode's epoch is confirmed in all.
- After step 2, with or without a reply, at once or later: it is confirmed or pending in all.
- After step 3 in some roots: it is confirmed there, and pending in the others.

So every crash fits. A disk that goes back fits only until the znode has moved past what is on it: one or two moves.

**The promise**, with its bounds in numbers, is in docs/deployment/operations.md, "A disk was restored from a snapshot". It
holds because an epoch begins when step 1 begins, so no snapshot that fits it is older, and because a bookie takes nothing later
than ``epoch_timeout_s`` after the beginning of the last epoch that it knows to be in the znode (process/boot_epoch_keeper.py).
So if it took something so long after a snapshot, the znode has moved past that. Times are those of the bookie's steady clock.

This is why acknowledgements end when the metadata store was away for that long, and why reads go on: they promise nothing.
A try whose outcome is unknown is repeated with the same epoch, for which the disks are prepared. Another one would make a
change that takes effect late look like somebody else's.

A znode with a later boot, or with another boot of this number, means that another process has taken this bookie with a copy of
its disks. Those disks count from now on, so this process may not acknowledge anything any more. An earlier boot or epoch means
that the metadata store was restored to an older state. This process knows that its disks did not go back, and moves on.

Ref: docs/rules.md, storage rules 8 and 9; DESIGN.md, "The boot epoch moves while a bookie runs".
"""

from __future__ import annotations

import logging

from bk_spark.bookie.identity.boot import Boot, MetadataPlace
from bk_spark.bookie.identity.cookie_file import CookieZnode, StoredCookie, read_znode, write_znode
from bk_spark.bookie.identity.fix_command import fix_command
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError, State

logger = logging.getLogger(__name__)


def move_boot_epoch(boot: Boot, metadata: MetadataPlace) -> None:
    """Move the boot epoch of a running bookie by one, or end a move that was begun. Everything is durable when it returns.

    Raises MetadataConflictError if another process has taken the bookie: this one must acknowledge nothing any more. After
    MetadataUnavailableError and StorageError the move may have taken effect: call this again. So, too, after ConfigError,
    CorruptionError and FormatVersionError, if the cookie is gone or was rewritten by another tool: no disk is accepted then.
    """
    wanted = boot.begin_epoch()
    found = read_znode(metadata.store, metadata.znodes, boot.bookie_id)
    if _may_move(boot, metadata, wanted, found):
        write_znode(metadata.store, metadata.znodes, wanted, found)
    boot.confirm_epoch()


def _may_move(boot: Boot, metadata: MetadataPlace, wanted: StoredCookie, found: CookieZnode | None) -> bool:
    """Whether the znode is to be changed. False: it holds the wanted epoch already."""
    cookie = f"the cookie of bookie {boot.bookie_id}"
    if found is None:
        raise ConfigError(cookie, State("missing"), f"the bookie was removed from the cluster: {_start_again(boot, metadata)}")
    stored = found.cookie
    if stored is None:
        raise CorruptionError(cookie, f"{found.damage}; {_start_again(boot, metadata)}")
    if stored.boot == wanted.boot:
        return False
    if not (stored.boot.is_before(wanted.boot) and _is_earlier(boot, stored)):
        problem = f"it is that of boot {stored.boot.shown}, and this process is boot {boot.confirmed.shown}"
        remedy = "another process runs this bookie with a copy of its directories: stop one of the two"
        raise MetadataConflictError(cookie, f"{problem}; {remedy}")
    if stored.boot != boot.confirmed:
        logger.warning(
            "bookie %s moves on from boot %s to %s: the metadata store was restored from an older state",
            *(boot.bookie_id, stored.boot.shown, wanted.boot.shown),
        )
    return True


def _start_again(boot: Boot, metadata: MetadataPlace) -> str:
    fix = fix_command(boot.bookie_id, boot.directories, metadata.store.uri)
    return f"stop it; if it is to stay, run '{fix}' and start it again"


def _is_earlier(boot: Boot, stored: StoredCookie) -> bool:
    return stored.boot.number < boot.number or stored.boot.is_same_boot(boot.confirmed)
