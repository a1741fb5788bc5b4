"""One boot of a bookie: takes the next boot number, repairs what may be repaired, and marks whether the run ended cleanly.

These steps write, each durably before the next:

1. ``boot`` of every root: the new number as pending. If a disk was lost: also that this loss has to be handled.
2. The cookie's znode, by compare-and-set: the new number with a random token, and the directories as they are now.
3. ``cookie`` of each root that a repair stamps, the data directory's first.
4. ``boot`` of every root: the number as confirmed, and ``running``. Until step 8 undoes this, the stop counts as unclean.
5. The storage is opened. If data may have been lost, limbo is durable in the index when that returns.
6. ``boot`` of every root, if it changes: which index it is, and that the loss is handled.
7. The bookie serves and registers. At the end everything is flushed. Only if that succeeded:
8. ``boot`` of every root: ``clean``. If only some roots say so, the stop was unclean.

While the bookie runs, its epoch moves by the same steps 1, 2 and 4 (boot_epoch.py).

The next boot understands what a crash after any step leaves. A number fits if it is confirmed or pending in every root, so it
does not matter whether step 2 took effect. A repair that stamped only some of its roots finds the others still empty, and
begins anew. The loss that it repairs was recorded first, so no stamp ever stands without limbo (situation 70).

An unclean stop alone loses no data: what was acked is in the log files. After a run that skipped the journal or saw a failed
sync it counts as a possible loss, whatever the settings are now.

Ref: BP-46, "Detecting Data Loss On Boot" and "The Full Boot-Up Sequence"; docs/rules.md, protocol rules 51 and 52, storage
rules 9, 12 and 13; situations 70 and 71.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity import cookie_file
from bk_spark.bookie.identity.boot_file import NO_INDEX, BootPhase, BootRecord, write_boot
from bk_spark.bookie.identity.cookie_file import BootNumber, Cookie, StoredCookie
from bk_spark.bookie.identity.identity import Identity, Root, latest
from bk_spark.bookie.index.generation import IndexGeneration, read_generation
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE, WAY_OUT
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError, NotOpenedError, State, StorageError
from bk_spark.metadata.registration import lookup
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

NEVER_BOOTED = BootNumber(0, "never")
"""The last boot of a directory that a repair has just made. Formatting draws a token instead."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetadataPlace:
    """The metadata store and the cluster's paths in it."""

    store: MetadataStore
    znodes: Znodes


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the disks and the metadata store say once a boot has its number."""

    record: BootRecord
    stored: StoredCookie


class Boot:
    """One run of a bookie, from step 4 on. Made by ``begin_boot``. The caller holds the locks of all roots throughout.

    Any thread may call the methods; the last call is ``end``.
    """

    def __init__(self, identity: Identity, disk: Disk, taken: _Taken, losses: tuple[str, ...]) -> None:
        self._identity = identity
        self._disk = disk
        self._stored = taken.stored
        self._lock = threading.Lock()
        """Guards the fields below, and the boot files."""
        self._record = taken.record
        """What the boot files are to say."""
        self._is_written = True
        """Whether all of them say it."""
        self.possible_loss = "; ".join(losses)
        """Why data may have been lost: then open the storage in limbo. "" if it was not."""

    @property
    def bookie_id(self) -> str:
        return self._identity.bookie_id

    @property
    def directories(self) -> Directories:
        return self._identity.directories

    @property
    def number(self) -> int:
        return self._record.confirmed.number

    @property
    def confirmed(self) -> BootNumber:
        """The boot and its epoch, as they are known to be in the metadata store."""
        return self._record.confirmed

    def opened(self, *, skips_journal: bool) -> None:
        """The storage is open, and its limbo is durable if it needs one: from here on only this run itself can lose data."""
        self._change(skipped_journal=skips_journal, index=_index(self._identity, self._disk))

    def begin_epoch(self) -> StoredCookie:
        """Write the next epoch as pending, durably on every disk, unless it is already. Returns the cookie to store with it.

        Raises StorageError: then the epoch is not begun, and the next call tries again.
        """
        with self._lock:
            pending = self._record.pending or self._record.confirmed.next_epoch
            self._write(replace(self._record, pending=pending))
            return replace(self._stored, boot=pending)

    def confirm_epoch(self) -> None:
        """The metadata store holds the pending epoch. Raises StorageError; the disks fit all the same."""
        with self._lock:
            if self._record.pending is not None:
                self._write(replace(self._record, confirmed=self._record.pending, pending=None))

    def note_failed_sync(self) -> None:
        """Have the next boot distrust the disk, whose content is unknown now. Does nothing if the disk takes no write."""
        with suppress(StorageError, NotOpenedError):
            self._change(skipped_journal=True)

    def give_up(self) -> None:
        """The start was ended before anything was served: a loss that was possible still is, and no other one came up."""
        if not self.possible_loss:
            self.end()

    def end(self) -> None:
        """Mark the run as clean, after a verified flush of everything. Raises StorageError: then the stop counts as unclean."""
        self._change(phase=BootPhase.CLEAN, skipped_journal=False, index=_index(self._identity, self._disk))

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._write(replace(self._record, **changes))

    def _write(self, record: BootRecord) -> None:
        """With the lock. A write that failed in one root is due again with the next one: none is to say less than is known."""
        if record == self._record and self._is_written:
            return
        self._record, self._is_written = record, False
        for root in self._identity.roots:
            write_boot(self._disk, root.path, record)
        self._is_written = True


def check_startable(identity: Identity, config: BookieConfig) -> None:
    """Raise the error of the first mismatch that needs an operator's order to be repaired."""
    for mismatch in identity.mismatches:
        if not (config.automatic_cookie_repair and mismatch.is_automatic):
            raise mismatch.error


def begin_boot(identity: Identity, metadata: MetadataPlace, config: BookieConfig, disk: Disk) -> Boot:
    """Steps 1 to 4. Everything is durable when it returns, and nothing was served.

    Raises as ``check_startable``; MetadataConflictError if another process boots this bookie; MetadataUnavailableError;
    StorageError.
    """
    check_startable(identity, config)
    for mismatch in identity.mismatches:
        logger.warning("bookie %s repairs what is wrong with %s", identity.bookie_id, mismatch.place)
    losses = possible_losses(identity, disk)
    skipped = bool(losses) or not config.journal_write_data
    running = replace(_former(identity), phase=BootPhase.RUNNING, skipped_journal=skipped)
    return Boot(identity, disk, _advance(identity, metadata, disk, running), losses)


def possible_losses(identity: Identity, disk: Disk) -> tuple[str, ...]:
    """Why a start would have to be in limbo now; empty if it would not."""
    return (*_lost_directories(identity), *_lost_by_the_last_run(identity), *_lost_index(identity, disk))


def fix_cookies(identity: Identity, metadata: MetadataPlace, disk: Disk) -> tuple[str, ...]:
    """Repair all mismatches at an operator's request. The next start is in limbo if they may mean a loss of data.

    Returns what was repaired. The caller holds all locks. Raises ConfigError for a registered bookie, and as ``begin_boot``.
    """
    address = lookup(metadata.store, metadata.znodes, identity.bookie_id)
    if address is not None:
        where = State(f"registered at {address.place}")
        raise ConfigError(f"bookie {identity.bookie_id}", where, "stop it, or wait for its session to expire")
    repaired = tuple(f"{mismatch.place}: {mismatch.problem}" for mismatch in identity.mismatches)
    former = _former(identity)
    if _lost_directories(identity):
        former = replace(former, phase=BootPhase.RUNNING, skipped_journal=True)
    if repaired:
        _advance(identity, metadata, disk, former)
    return repaired


def _former(identity: Identity) -> BootRecord:
    """How the last run ended, from the boot files of all roots: cleanly only if all say so."""
    records = _records(identity)
    indexes = [record.index for record in records if record.index != NO_INDEX]
    return BootRecord(
        confirmed=latest([record.confirmed for record in records]) or NEVER_BOOTED,
        phase=BootPhase.RUNNING if any(record.phase is BootPhase.RUNNING for record in records) else BootPhase.CLEAN,
        skipped_journal=any(record.skipped_journal for record in records),
        index=max(indexes, key=lambda index: index.generation, default=NO_INDEX),
    )


def _records(identity: Identity) -> list[BootRecord]:
    return [root.record for root in identity.roots if root.cookie is not None and root.record is not None]


def _lost_directories(identity: Identity) -> tuple[str, ...]:
    return tuple(f"the content of {mismatch.place} is taken for lost" for mismatch in identity.mismatches if mismatch.is_loss)


def _lost_by_the_last_run(identity: Identity) -> Iterable[str]:
    former = _former(identity)
    if former.phase is BootPhase.RUNNING and former.skipped_journal:
        yield "a run that skipped the journal, saw a failed sync or followed a repair did not end cleanly"


def _lost_index(identity: Identity, disk: Disk) -> Iterable[str]:
    """A rebuilt index has forgotten fences; one from a copy has forgotten what came after the copy was made."""
    found = _index(identity, disk)
    for record in _records(identity):
        if record.index == NO_INDEX:
            continue
        if found.incarnation != record.index.incarnation:
            yield "the index is another one than the bookie ran with: it was rebuilt, or taken from elsewhere"
            return
        if found.generation < record.index.generation:
            yield f"the index has generation {found.generation}, and {record.index.generation} when it was last used: it is old"
            return


def _index(identity: Identity, disk: Disk) -> IndexGeneration:
    try:
        return read_generation(disk, identity.directories.index / GENERATION_FILE) or NO_INDEX
    except CorruptionError as damage:
        raise CorruptionError(damage.what, f"{damage.problem}; {WAY_OUT}") from damage


def _advance(identity: Identity, metadata: MetadataPlace, disk: Disk, final: BootRecord) -> _Taken:
    """Steps 1 to 4 with the next number. The boot files say ``final`` at the end, with that number as confirmed."""
    stored_before = identity.stored
    known = [stored_before.boot] if stored_before is not None else [record.confirmed for record in _records(identity)]
    boot = BootNumber(max((number.number for number in known), default=0) + 1, disk.random_bytes(cookie_file.ID_BYTES).hex())
    is_lost = any(mismatch.is_loss for mismatch in identity.mismatches)
    for root in identity.roots:
        record = _begun(root, stored_before, boot)
        if is_lost:
            record = replace(record, phase=BootPhase.RUNNING, skipped_journal=True)
        write_boot(disk, root.path, record)
    cookies = _wanted_cookies(identity, disk)
    stored = cookie_file.make_stored(cookies[identity.directories.data_dir], identity.directories, boot)
    if stored_before is not None and stored_before.places == stored.places:
        stored = replace(stored_before, boot=boot)
    try:
        cookie_file.write_znode(metadata.store, metadata.znodes, stored, identity.znode)
    except MetadataConflictError:
        for root in identity.roots:
            if root.record is not None:  # its pending number may be the winner's of the lost race, so it is needed again
                write_boot(disk, root.path, root.record)
        raise
    for root in identity.roots:
        if cookies[root.path] != root.cookie:
            disk.replace(root.path / cookie_file.COOKIE_FILE, cookie_file.encode_cookie(cookies[root.path]))
    confirmed = replace(final, confirmed=boot, pending=None)
    for root in identity.roots:
        write_boot(disk, root.path, confirmed)
    return _Taken(confirmed, stored)


def _begun(root: Root, stored: StoredCookie | None, boot: BootNumber) -> BootRecord:
    former = root.record if root.cookie is not None and root.record is not None else BootRecord(NEVER_BOOTED)
    return former.begun(stored.boot, boot) if stored is not None else replace(former, pending=boot)


def _wanted_cookies(identity: Identity, disk: Disk) -> dict[Path, Cookie]:
    """The cookie that each root is to have. A root without a good cookie becomes a new directory."""
    ids = {
        root.path: root.cookie.directory_id if root.cookie is not None else disk.random_bytes(cookie_file.ID_BYTES).hex()
        for root in identity.roots
    }
    return cookie_file.make_cookies(identity.bookie_id, identity.instance_id, identity.directories, ids)
