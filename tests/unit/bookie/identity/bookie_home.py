"""Directories of one bookie and a cluster in memory, with the steps of its life up to serving."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import TEMPORARY_SUFFIX, Disk
from bk_spark.bookie.identity.boot import Boot, MetadataPlace, begin_boot, fix_cookies
from bk_spark.bookie.identity.boot_file import BootRecord, read_boot
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE, Cookie, StoredCookie, decode_cookie, decode_stored, encode_stored
from bk_spark.bookie.identity.fix_command import fix_command
from bk_spark.bookie.identity.identity import Identity, examine
from bk_spark.bookie.index.generation import IndexGeneration, writing_generation
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE
from bk_spark.config import BookieConfig
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")


class Cut(BaseException):
    """The process dies here."""


class Steps:
    """Counts what changes a disk or the store; dies before or after the given one."""

    def __init__(self) -> None:
        self.done = 0
        self.cut_before = self.cut_after = -1

    def take(self, step: Callable[[], object]) -> None:
        if self.done == self.cut_before:
            raise Cut
        self.done += 1
        step()
        if self.done - 1 == self.cut_after:
            raise Cut


class QuickDisk(Disk):
    """Syncs nothing: no test that uses it cuts the power, and syncs are slow on a busy disk."""

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        temporary.write_bytes(data)
        temporary.rename(path)

    def sync_directory(self, directory: Path) -> None:
        pass


QUICK_DISK = QuickDisk()


class SteppedDisk(QuickDisk):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def replace(self, path: Path, data: bytes) -> None:
        self._steps.take(lambda: super(SteppedDisk, self).replace(path, data))


class SteppedStore(MemoryStore):
    def __init__(self, tree: MemoryTree, steps: Steps) -> None:
        super().__init__(tree)
        self._steps = steps

    def set(self, path: str, value: bytes, version: int) -> int:
        self._steps.take(lambda: super(SteppedStore, self).set(path, value, version))
        return version + 1


class Home:
    """One bookie: ``data`` alone, or with ``/j`` for journals and ``/a``, ``/b`` for entry logs. Formatted when made."""

    def __init__(self, root: Path, *, disks: bool = True, tree: MemoryTree | None = None) -> None:
        self.root = root
        self.tree = tree or MemoryTree(lambda: 0)
        self.store = MemoryStore(self.tree)
        initialise_cluster(self.store, ZNODES)
        self.config = BookieConfig()
        if disks:
            self.configure(journal_dirs=f"{root}/j", ledger_dirs=f"{root}/a,{root}/b")
        self.bookie_id = format_bookie(self.directories, self.store, ZNODES, "h:1", disk=QUICK_DISK)

    def configure(self, **settings: object) -> None:
        fields = {name: getattr(self.config, name) for name in BookieConfig.__dataclass_fields__}
        self.config = BookieConfig(**{**fields, **settings})

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def directories(self) -> Directories:
        return Directories.of(self.data, self.config)

    @property
    def fix_command(self) -> str:
        """The command that repairs its cookies."""
        return fix_command(self.bookie_id, self.directories, self.store.uri)

    def examine(self, *, store: MemoryStore | None = None, bookie_id: str | None = None) -> Identity:
        return examine(self.directories, store or self.store, ZNODES, QUICK_DISK, bookie_id=bookie_id)

    def boot(self, *, disk: Disk = QUICK_DISK, store: MemoryStore | None = None, identity: Identity | None = None) -> Boot:
        identity = identity or self.examine(store=store)
        return begin_boot(identity, MetadataPlace(store or self.store, ZNODES), self.config, disk)

    def run(self, *, generation: int = 1, incarnation: bytes = b"A" * 16) -> Boot:
        """Boot, and do with the index what opening and using it does."""
        boot = self.boot()
        self.write_index(generation, incarnation)
        boot.opened(skips_journal=not self.config.journal_write_data)
        return boot

    def write_index(self, generation: int, incarnation: bytes = b"A" * 16) -> None:
        self.directories.index.mkdir(parents=True, exist_ok=True)
        with writing_generation(QUICK_DISK, self.directories.index / GENERATION_FILE) as write:
            write(IndexGeneration(incarnation, generation))

    def fix(self, *, bookie_id: str | None = None) -> tuple[str, ...]:
        return fix_cookies(self.examine(bookie_id=bookie_id), MetadataPlace(self.store, ZNODES), QUICK_DISK)

    def lose(self, root: Path) -> None:
        """Another, empty disk in the place of this one."""
        shutil.rmtree(root)
        root.mkdir()

    def stored(self) -> StoredCookie:
        return decode_stored(self.store.get(ZNODES.cookie(self.bookie_id)).value, "z")

    def change_stored(self, change: Callable[[StoredCookie], StoredCookie]) -> None:
        path = ZNODES.cookie(self.bookie_id)
        found = self.store.get(path)
        self.store.set(path, encode_stored(change(decode_stored(found.value, "z"))), found.version)

    def cookies(self) -> dict[Path, Cookie]:
        return {root: decode_cookie((root / COOKIE_FILE).read_bytes(), "c") for root in self.directories.roots}

    def records(self) -> list[BootRecord]:
        found = [read_boot(QUICK_DISK, root) for root in self.directories.roots]
        assert None not in found
        return [record for record in found if record is not None]

    def snapshot(self, root: Path) -> Callable[[], None]:
        """Gives what puts a directory back as it is now."""
        kept = root.with_name(root.name + "-kept")
        shutil.copytree(root, kept)

        def restore() -> None:
            shutil.rmtree(root)
            shutil.copytree(kept, root)

        return restore


def cut_everywhere(prepare: Callable[[], Home], run: Callable[[Home, SteppedDisk, SteppedStore], None]) -> list[Home]:
    """What is left when a process dies before or after any of its steps."""
    left = []
    for name in ("cut_before", "cut_after"):
        for step in range(100):
            home, steps = prepare(), Steps()
            setattr(steps, name, step)
            try:
                run(home, SteppedDisk(steps), SteppedStore(home.tree, steps))
            except Cut:
                left.append(home)
            else:
                break
    return left


def numbered(tmp_path: Path, settle: Callable[[Home], None]) -> Callable[[], Home]:
    """A home in a state, made anew each time."""
    numbers = iter(range(1000))

    def prepare() -> Home:
        home = Home(tmp_path / str(next(numbers)))
        settle(home)
        return home

    return prepare


def begin(home: Home, disk: Disk, store: MemoryStore) -> None:
    """A start up to where the storage is opened."""
    home.boot(disk=disk, store=store)
