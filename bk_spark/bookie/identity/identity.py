"""The first check of a start: which bookie the directories belong to, and whether all of them are there and up to date.

It finds three kinds of problems:

- Wrong settings, or something that belongs to somebody else: a directory of another cluster or bookie, directories in another
  order, one left out, a bookie that was removed from the cluster. These are raised at once; only the right settings help.
- A **mismatch**, which an operator can have repaired by ``bk-spark cookie fix``.
- A mismatch that looks like the plain loss of a disk (an empty directory, a boot number that does not fit). With
  ``automatic_cookie_repair`` a bookie repairs it by itself.

The address is not part of the identity: a bookie that listens elsewhere is still the same.

Ref: Apache BookKeeper's Cookie; docs/rules.md, protocol rule 48, storage rule 9, situation 69.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import TEMPORARY_SUFFIX, Disk
from bk_spark.bookie.identity import cookie_file
from bk_spark.bookie.identity.boot_file import BOOT_FILE, BootRecord, read_boot
from bk_spark.bookie.identity.cookie_file import DATA, BootNumber, Cookie, CookieZnode, StoredCookie
from bk_spark.bookie.identity.fix_command import BOOKIE_ID, fix_command
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, State
from bk_spark.metadata.registration import RESTORE, check_layout, instance_id, is_initialised
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

FORMAT_FIRST = "'bk-spark bookie format --data-dir D' makes a bookie of an empty directory"
NO_CONTENT = {BOOT_FILE, "lost+found"}
"""Names in a directory that counts as empty: an interrupted repair leaves the first, a new file system the second."""


@dataclass(frozen=True, slots=True)
class Root:
    """A root directory as it was found."""

    path: Path
    uses: tuple[str, ...]
    """What the settings use it for."""
    cookie: Cookie | None
    record: BootRecord | None
    damage: CorruptionError | None
    """Of the cookie or the boot file, which is None then."""
    content: str
    """The name of something in a directory without a cookie, "" if the directory counts as empty."""

    @property
    def name(self) -> str:
        return "data directory" if DATA in self.uses else f"directory of {' and '.join(self.uses)}"

    def wrong(self, remedy: str) -> ConfigError:
        return ConfigError(f"the {self.name}", str(self.path), remedy)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A problem that a repair can solve."""

    place: str
    """The directory, or the metadata store."""
    problem: str
    """What is wrong there, without a way out."""
    error: BookKeeperError
    """What a start without a repair raises."""
    is_loss: bool = True
    """Whether it may mean that data is lost."""
    is_automatic: bool = True
    """Whether ``automatic_cookie_repair`` covers it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the directories and the metadata store say about a bookie."""

    bookie_id: str
    instance_id: str
    directories: Directories
    roots: tuple[Root, ...]
    znode: CookieZnode | None
    mismatches: tuple[Mismatch, ...]

    @property
    def stored(self) -> StoredCookie | None:
        return self.znode.cookie if self.znode is not None else None


def check_store(directories: Directories, store: MetadataStore, root: str, disk: Disk) -> None:
    """Raise ConfigError if no cluster is initialised at ``root`` of the store, although the directories are a bookie's.

    A cluster initialised there anew would be another one, without a single ledger of those that the bookie holds.
    """
    if is_initialised(store, root):
        return
    store.sync(root)  # so that the absence is not that of a lagging follower
    if is_initialised(store, root):
        return
    for path in directories.roots:
        held = _held(path, disk) if disk.is_directory(path) else ""
        if held:
            remedy = f"no cluster is initialised there, and {path} {held}: the store has lost that cluster, or never had it"
            raise ConfigError("the metadata URI", store.uri, f"{remedy}; check the URI, or {RESTORE}")


def _held(path: Path, disk: Disk) -> str:
    """Which cluster a root directory says it belongs to; "" if it counts as empty."""
    found = _look(path, (), disk)
    if found.cookie is not None:
        return f"belongs to bookie {found.cookie.bookie_id} of the cluster with instance id {found.cookie.instance_id}"
    if found.damage is not None:
        return f"belongs to a bookie of a cluster that cannot be read ({found.damage})"
    return f"holds {found.content!r}, as if a bookie of some cluster had run there" if found.content else ""


def examine(
    directories: Directories, store: MetadataStore, znodes: Znodes, disk: Disk, *, bookie_id: str | None = None
) -> Identity:
    """Examine all roots and the metadata store. The caller holds the roots' locks, or only displays the result.

    ``bookie_id`` is the id that an operator names; None takes it from the directories. Raises ConfigError, FormatVersionError,
    StorageError, MetadataUnavailableError; CorruptionError if no directory can say whose it is.
    """
    check_store(directories, store, znodes.root, disk)
    check_layout(store, znodes)
    instance = instance_id(store, znodes)
    roots = tuple(_look(path, uses, disk) for path, uses in cookie_file.root_uses(directories).items())
    found_id = _bookie_id(roots, bookie_id, fix_command(BOOKIE_ID, directories, store.uri))
    fix = fix_command(found_id, directories, store.uri)
    for root in roots:
        _check_owner(root, found_id, instance, store.uri)
    znode = cookie_file.read_znode(store, znodes, found_id)
    if znode is not None and znode.cookie is not None:
        _check_stored(znode.cookie, found_id, instance, store.uri)
        mismatches = (*_of_places(roots, znode.cookie, fix), *_of_boots(roots, znode.cookie, fix))
    else:
        mismatches = (_of_znode(found_id, znode, store.uri, fix),)
    return Identity(found_id, instance, directories, roots, znode, tuple(mismatches))


def examine_alone(directories: Directories, disk: Disk) -> Identity:
    """Like ``examine``, but without the metadata store: compares the directories with the list in the data directory.

    Raises ConfigError, FormatVersionError, StorageError; CorruptionError if the data directory cannot say whose it is.
    """
    roots = tuple(_look(path, uses, disk) for path, uses in cookie_file.root_uses(directories).items())
    data = roots[0]
    if data.cookie is None:
        raise data.damage or data.wrong(f"it is not formatted: {FORMAT_FIRST}")
    for root in roots:
        _check_owner(root, data.cookie.bookie_id, data.cookie.instance_id, f"that of {data.path}")
    boot = latest([root.record.confirmed for root in roots if root.cookie is not None and root.record is not None])
    listed = StoredCookie(data.cookie.bookie_id, data.cookie.instance_id, data.cookie.places, boot or BootNumber(0, ""), "")
    fix = fix_command(listed.bookie_id, directories)
    mismatches = (*_of_places(roots, listed, fix), *_of_boots(roots, listed, fix))
    return Identity(listed.bookie_id, listed.instance_id, directories, roots, None, mismatches)


def latest(numbers: Sequence[BootNumber]) -> BootNumber | None:
    """The number of the latest boot, at its latest epoch; None of none."""
    return max(numbers, key=lambda boot: (boot.number, boot.epoch), default=None)


def content_of(path: Path, disk: Disk) -> str:
    """The name of something in a directory, "" if the directory counts as empty."""
    names = [name for name in disk.list(path) if name not in NO_CONTENT and not name.endswith(TEMPORARY_SUFFIX)]
    return names[0] if names else ""


def _look(path: Path, uses: tuple[str, ...], disk: Disk) -> Root:
    cookie, record, damage = None, None, None
    data = disk.read_small(path / cookie_file.COOKIE_FILE)
    try:
        cookie = None if data is None else cookie_file.decode_cookie(data, str(path / cookie_file.COOKIE_FILE))
        record = read_boot(disk, path)
    except CorruptionError as problem:
        damage = problem
    return Root(path, uses, cookie, record, damage, "" if cookie is not None else content_of(path, disk))


def _bookie_id(roots: tuple[Root, ...], named: str | None, fix: str) -> str:
    """The bookie that the directories belong to: as the data directory says, else another directory, else the operator.

    ``fix`` is the command that repairs, here and below.
    """
    for root in roots:
        if root.cookie is not None:
            if named not in (None, root.cookie.bookie_id):
                raise ConfigError("the bookie id", named, f"{root.path} belongs to bookie {root.cookie.bookie_id}")
            return root.cookie.bookie_id
    if named is not None:
        return named
    if roots[0].damage is not None:
        raise _with_way_out(roots[0].damage, fix)
    way_out = f"'{fix}' gives it to a bookie that has lost its disk"
    raise roots[0].wrong(f"it is not formatted: {FORMAT_FIRST}, and {way_out}")


def _check_owner(root: Root, bookie_id: str, instance: str, uri: str) -> None:
    cookie = root.cookie
    if cookie is None:
        return
    if cookie.instance_id != instance:
        clusters = f"the cluster with instance id {cookie.instance_id}, and {uri} is {instance}"
        raise root.wrong(f"it was formatted for {clusters}: check the metadata URI")
    if cookie.bookie_id != bookie_id:
        owners = f"it belongs to bookie {cookie.bookie_id}, the others to bookie {bookie_id}"
        raise root.wrong(f"{owners}: give each bookie its own directories")
    if not set(root.uses) <= set(cookie.uses):
        remedy = "name the directories in the order in which they were formatted, each once"
        raise root.wrong(f"it was formatted as directory of {' and '.join(cookie.uses)}: {remedy}")


def _check_stored(stored: StoredCookie, bookie_id: str, instance: str, uri: str) -> None:
    if (stored.bookie_id, stored.instance_id) != (bookie_id, instance):
        raise ConfigError(
            f"the cookie of bookie {bookie_id} in {uri}",
            State(f"that of bookie {stored.bookie_id} of instance {stored.instance_id}"),
            f"the directories belong to bookie {bookie_id} of instance {instance}: give each bookie its own directory",
        )


def _of_znode(bookie_id: str, znode: CookieZnode | None, uri: str, fix: str) -> Mismatch:
    if znode is not None and znode.damage is not None:
        return _of_damage(uri, znode.damage, fix)
    problem = f"bookie {bookie_id} has no cookie there, it was removed from the cluster"
    way_out = f"format an empty directory instead, or, if it is to come back as a bookie that lost its disks, run '{fix}'"
    error = ConfigError("the metadata store", uri, f"{problem}: {way_out}")
    return Mismatch(uri, problem, error, is_automatic=False)


def _of_damage(place: str, damage: CorruptionError, fix: str) -> Mismatch:
    return Mismatch(place, str(damage), _with_way_out(damage, fix), is_automatic=False)


def _of_places(roots: tuple[Root, ...], stored: StoredCookie, fix: str) -> Iterator[Mismatch]:
    """The differences between the directories and the list of them in the metadata store."""
    known = {place.use: place.directory_id for place in stored.places}
    configured = {use for root in roots for use in root.uses}
    for use in known:
        if use not in configured:
            what = f"the directory of {use} of bookie {stored.bookie_id}"
            order = "name all directories in the order in which they were formatted"
            raise ConfigError(
                what, State("not named by the settings"), f"{order}, and an empty one in the place of one that is lost"
            )
    for root in roots:
        if root.damage is not None:
            yield _of_damage(str(root.path), root.damage, fix)
        elif root.cookie is None:
            yield _unformatted(root, known, stored.bookie_id, fix)
        else:
            yield from _of_cookie(root, root.cookie, known, stored, fix)


def _of_cookie(root: Root, cookie: Cookie, known: dict[str, str], stored: StoredCookie, fix: str) -> Iterator[Mismatch]:
    moved = sorted(set(cookie.uses) - set(root.uses))
    if moved:
        problem = f"it was the directory of {' and '.join(moved)} too, for which there is another one now"
        way_out = f"take the setting back, or lose what is there and repair it from the other replicas by '{fix}'"
        yield Mismatch(str(root.path), problem, root.wrong(f"{problem}: {way_out}"), is_automatic=False)
    if any(known.get(use) != cookie.directory_id for use in root.uses):
        taker = f"another directory has taken its place at bookie {stored.bookie_id}"
        raise root.wrong(f"{taker}: name that one, or empty this one")
    if DATA in root.uses and cookie.places != stored.places:
        problem = f"it names other directories of bookie {stored.bookie_id} than the metadata store"
        error = ConfigError("the cookie of the data directory", str(root.path), f"{problem}: {_if_lost(fix)}")
        yield Mismatch(str(root.path), problem, error)


def _unformatted(root: Root, known: dict[str, str], bookie_id: str, fix: str) -> Mismatch:
    is_new = not any(use in known for use in root.uses)
    if root.content:
        problem = f"it has no cookie and is not empty, it holds {root.content!r}"
        way_out = f"name the right directory, or {_if_lost(fix)}"
    elif is_new:
        problem, way_out = f"it is new to bookie {bookie_id}", f"run '{fix}' to add it"
    else:
        problem = f"it is empty, and bookie {bookie_id} had files there"
        way_out = f"mount the right disk, or {_if_lost(fix)}"
    error = root.wrong(f"{problem}: {way_out}")
    return Mismatch(str(root.path), problem, error, is_loss=not is_new, is_automatic=not root.content)


def _of_boots(roots: tuple[Root, ...], stored: StoredCookie, fix: str) -> Iterator[Mismatch]:
    """Roots that missed a boot, or whose boot the metadata store does not know."""
    for root in roots:
        if root.cookie is None or root.damage is not None or (root.record is not None and root.record.fits(stored.boot)):
            continue
        found = None if root.record is None else root.record.confirmed
        is_ahead = found is not None and stored.boot.is_before(found)
        if is_ahead:
            problem = f"the metadata store knows bookie {stored.bookie_id} up to boot {stored.boot.shown} only"
            way_out = f"so it was restored from an older state: bring back the right one, or run '{fix}' for this one"
        else:
            problem = f"the last boot of bookie {stored.bookie_id} was number {stored.boot.shown}"
            way_out = (
                f"so {root.path} is a copy, or was restored from an older state: bring back the right disk, or {_if_lost(fix)}"
            )
        number = State("missing" if found is None else found.shown)
        error = ConfigError(f"the boot number of the {root.name}", number, f"{problem}, {way_out}")
        problem = f"its boot number is {number}, and {problem}"
        # Ahead within one boot: the store went back, and nothing shows that the disk did, too.
        is_loss = not (is_ahead and found is not None and found.is_same_boot(stored.boot))
        yield Mismatch(str(root.path), problem, error, is_loss=is_loss, is_automatic=not is_ahead)


def _with_way_out(damage: CorruptionError, fix: str) -> CorruptionError:
    return CorruptionError(damage.what, f"{damage.problem}; bring back a good copy of it, or {_if_lost(fix)}")


def _if_lost(fix: str) -> str:
    return f"if its content is lost, run '{fix}', then it is repaired from the other replicas"
