"""A bookie's life in its phases, watched from inside one process (situations 70 and 71).

Ref: docs/rules.md, protocol rules 48, 51 and 52, storage rules 9, 11 and 12.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk import REAL_DISK, Disk
from bk_spark.bookie.identity.boot_file import BootPhase, BootRecord, decode_boot
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.process import run_bookie as process
from bk_spark.bookie.process.registration import Registration
from bk_spark.bookie.process.run_bookie import BookiePlace, run_bookie
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError, StorageError
from bk_spark.local.process import HOST
from bk_spark.metadata.registration import BookieAddress, register
from bk_spark.metadata.store import Versioned
from bk_spark.metadata.zookeeper_session import SessionState
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.identity.bookie_home import ZNODES, Home

DEADLINE_S = 60.0

# --- the order of the phases, in one process


class Session(MemoryStore):
    """A session that calls ``on_register`` when a bookie registers, and lasts."""

    def __init__(self, tree: MemoryTree, on_register: Callable[[], None]) -> None:
        self._on_register = on_register
        self.session = SessionState(timeout_s=10.0, is_connected=True)
        super().__init__(tree)

    def create(self, path: str, value: bytes = b"", **options: Any) -> None:
        if path.startswith(ZNODES.available):
            self._on_register()
        super().create(path, value, **options)

    def on_new_session(self, callback: Callable[[], None]) -> None:
        pass


class QuietSession(Session):
    """Tells nobody of registrations, so that nothing stops the bookie."""

    def __init__(self, tree: MemoryTree, on_register: Callable[[], None]) -> None:
        super().__init__(tree, lambda: None)


class AwaySession(Session):
    """Does not answer the next ``left`` reads."""

    left = 0

    def get(self, path: str) -> Versioned:
        if AwaySession.left:
            AwaySession.left -= 1
            raise MetadataUnavailableError(self.uri, "it is away")
        return super().get(path)


class WatchedDisk(Disk):
    """Tells of marks and of the synced files; syncs of files whose path contains ``failing`` fail."""

    def __init__(self, events: list[str]) -> None:
        self._events = events
        self.failing = ""

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        if path.name == "boot":
            record = decode_boot(data, "boot")
            self._events.append("pending" if record.pending else record.phase.value)

    def _open_append(self, path: Path, flags: int):
        if self.failing and self.failing in str(path):
            raise StorageError(f"opening {path}", "it fails on purpose")
        return super()._open_append(path, flags)


class WatchedIndex:
    """An index that tells of limbo and of its end."""

    def __init__(self, index: Any, events: list[str], on_close: Callable[[], None]) -> None:
        self._index = index
        self._events = events
        self._on_close = on_close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def set_limbo(self, limbo: Any) -> None:
        self._index.set_limbo(limbo)
        self._events.append("limbo")

    def close(self) -> None:
        self._index.close()
        self._events.append("closed")
        self._on_close()


class Stage:
    """One bookie that is run in this process and stopped by a signal once it registers."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root, disks=False)
        self.events: list[str] = []
        self.disk = WatchedDisk(self.events)
        self.before_stop: Callable[[], None] = lambda: None
        self.may_stop: Callable[[], bool] = lambda: True
        self.on_open: Callable[[], None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None
        self.session_type = Session
        self._is_stopping = False
        self._stopper: threading.Thread | None = None

    def run(self, **settings: object) -> list[str]:
        """What happened, in order."""
        self.events.clear()
        self._is_stopping = False
        self.home.configure(**{"disk_check_s": 0.01, **settings})
        before = signal.signal(signal.SIGINT, lambda *_: None)  # a stop that comes after the end is for nobody
        try:
            run_bookie(
                BookiePlace(self.home.data, HOST, 0),
                self.session_type(self.home.tree, self._registers),  # type: ignore[arg-type]
                ZNODES,
                self.home.config,
                disk=self.disk,
                open_index=self._open_index,
            )
        finally:
            if self._stopper is not None:
                self._stopper.join()
            signal.signal(signal.SIGINT, before)
        return self.events

    def lose_what_was_acked(self) -> None:
        """A run without the journal that did not end."""
        self.home.configure(journal_write_data=False)
        self.home.boot()
        self.home.configure(journal_write_data=True)

    def _registers(self) -> None:
        self.events.append("registers")
        self.before_stop()
        if not self._is_stopping:
            self._is_stopping = True
            self._stopper = threading.Thread(target=self._stop)
            self._stopper.start()

    def _stop(self) -> None:
        try:
            until(self.may_stop)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def _open_index(self, *args: Any, **more: Any) -> Any:
        self.events.append("opens")
        self.on_open()
        return WatchedIndex(open_sqlite_index(*args, **more), self.events, lambda: self.on_close())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_mark_stands_before_the_storage_is_opened_and_goes_after_it_is_closed(stage: Stage) -> None:
    """Protocol rule 52: set before serving and registering, cleared after a verified flush only."""
    assert stage.run() == ["pending", "running", "opens", "running", "registers", "closed", "clean"]
    assert stage.run() == ["pending", "running", "opens", "running", "registers", "closed", "clean"]


def test_limbo_is_durable_before_the_bookie_registers(stage: Stage) -> None:
    """Protocol rule 51, storage rule 11."""
    stage.run()
    stage.lose_what_was_acked()
    events = stage.run()
    assert events[:6] == ["pending", "running", "opens", "limbo", "running", "registers"]


def test_every_ledger_id_issued_so_far_is_in_limbo_after_a_possible_loss(stage: Stage) -> None:
    highest = [stage.home.store.create_sequential(ZNODES.id_prefix) for _ in range(3)][-1]
    stage.lose_what_was_acked()
    seen: list[Any] = []
    original = WatchedIndex.set_limbo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatchedIndex, "set_limbo", lambda index, limbo: (seen.append(limbo), original(index, limbo)))
        stage.run()
    assert seen[0].fence_watermark >= int(highest[-10:])
    assert seen[0].holds(0)


def test_a_flush_that_failed_leaves_the_mark(stage: Stage) -> None:
    def fail() -> None:
        stage.disk.failing = "generation"

    stage.before_stop = fail
    with pytest.raises(StorageError):
        stage.run()
    (left,) = stage.home.records()
    assert (left.phase, left.skipped_journal) == (BootPhase.RUNNING, True)


def test_a_failed_sync_is_on_record_while_the_bookie_still_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage rule 6: it may be killed at any moment from then on."""

    def fail() -> None:
        monkeypatch.setattr(Bookie, "failure", StorageError("syncing", "on purpose"))

    def noted(record: BootRecord) -> bool:
        return record.skipped_journal

    stage.before_stop = fail
    stage.may_stop = lambda: any(map(noted, stage.home.records()))
    stage.run()
    (left,) = stage.home.records()
    assert (left.phase, left.skipped_journal) == (BootPhase.RUNNING, True)


def test_a_sync_that_failed_right_before_the_stop_is_on_record(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage rule 6: nobody looked between the failure and the end, and closing a failed storage raises nothing."""
    stage.before_stop = lambda: monkeypatch.setattr(Bookie, "failure", StorageError("syncing", "on purpose"))
    stage.run(disk_check_s=60)
    (left,) = stage.home.records()
    assert (left.phase, left.skipped_journal) == (BootPhase.RUNNING, True)


def test_a_bookie_that_cannot_register_ends_with_its_reason_and_leaves_the_mark(stage: Stage) -> None:
    stage.on_open = lambda: register(stage.home.store, ZNODES, BookieAddress(stage.home.bookie_id, "elsewhere", 7))
    stage.session_type = QuietSession
    with pytest.raises(MetadataConflictError, match="elsewhere:7"):
        stage.run(session_timeout_s=0.01)
    assert [record.phase for record in stage.home.records()] == [BootPhase.RUNNING]
    assert stage.home.examine().mismatches == ()


def test_a_copy_of_a_running_bookies_disks_takes_no_boot_number(stage: Stage) -> None:
    """Storage rule 9: the number would later speak for the copy, which lacks what the original acked since it was made."""
    register(stage.home.store, ZNODES, BookieAddress(stage.home.bookie_id, "elsewhere", 7))
    before = stage.home.stored(), stage.home.records()
    with pytest.raises(MetadataConflictError, match=r"elsewhere:7 serves it: stop that one"):
        stage.run(session_timeout_s=0.01)
    assert (stage.home.stored(), stage.home.records()) == before


def test_a_bookie_that_cannot_listen_at_its_address_takes_no_boot_number(stage: Stage) -> None:
    before = stage.home.stored(), stage.home.records()
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"{HOST}:{port}.*Address already in use.*choose another --host and --port"):
            run_bookie(BookiePlace(stage.home.data, HOST, port), stage.home.store, ZNODES, stage.home.config)  # type: ignore[arg-type]
    assert (stage.home.stored(), stage.home.records()) == before


def test_a_storage_to_be_opened_anew_waits_for_a_metadata_store_that_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Situation 68: the disks of a bookie were full while ZooKeeper was restarted."""
    monkeypatch.setattr(process, "REOPEN_PAUSE_S", 0.01)
    AwaySession.left = 0
    stage.session_type = AwaySession

    def fill() -> None:
        try:
            raise StorageError("writing", "no space") from OSError(errno.ENOSPC, "no space")
        except StorageError as problem:
            stage.before_stop = lambda: None
            stage.on_close = go_away
            stage.may_stop = lambda: AwaySession.left == 0 and stage.events.count("registers") == 2
            monkeypatch.setattr(Bookie, "failure", problem)

    def go_away() -> None:
        stage.on_close = lambda: None
        AwaySession.left = 3
        monkeypatch.setattr(Bookie, "failure", None)

    stage.before_stop = fill
    events = stage.run()
    assert (events.count("registers"), events[-1]) == (2, "clean")


@pytest.mark.parametrize("moment", ["leaves the list of bookies", "closes its storage", "opens it anew"])
def test_a_stop_that_comes_while_the_storage_is_opened_anew_ends_the_bookie(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Storage rule 18."""
    end = Registration.end

    def fill() -> None:
        try:
            raise StorageError("writing", "no space") from OSError(errno.ENOSPC, "no space")
        except StorageError as problem:
            stage.before_stop = lambda: None
            stage.may_stop = lambda: stage.events.count("registers") == 2 or moment in stage.events
            monkeypatch.setattr(Bookie, "failure", problem)
            at_the_end()

    def at_the_end() -> None:
        if moment == "leaves the list of bookies":
            monkeypatch.setattr(Registration, "end", lambda registration: (tell(), end(registration)))
        else:
            stage.on_close = close

    def close() -> None:
        stage.on_close = lambda: None
        monkeypatch.setattr(Bookie, "failure", None)
        if moment == "closes its storage":
            tell()
        else:
            stage.on_open = tell

    def tell() -> None:
        if moment not in stage.events:
            stage.events.append(moment)
            os.kill(os.getpid(), signal.SIGINT)

    stage.before_stop = fill
    assert stage.run().count("registers") == 1
    monkeypatch.undo()
    stage.may_stop, stage.on_open, stage.on_close = lambda: True, lambda: None, lambda: None
    assert stage.run()[-1] == "clean"


def test_a_directory_that_is_not_there_is_refused_with_the_way_out(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.*it is not there: mount its disk.*'bk-spark bookie format --data-dir D'"):
        stage.run(ledger_dirs=f"{tmp_path}/missing")


@pytest.mark.parametrize("name", ["data", "j", "a", "b"])
def test_a_bookie_of_which_another_process_has_one_directory_does_not_start(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    lock = REAL_DISK.lock(tmp_path / name)
    before = home.stored(), home.records()
    with pytest.raises(ConfigError, match=f"{tmp_path}/{name}.*another process uses it"):
        run_bookie(BookiePlace(home.data, HOST, 0), home.store, ZNODES, home.config)  # type: ignore[arg-type]
    lock.release()
    assert (home.stored(), home.records()) == before


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
