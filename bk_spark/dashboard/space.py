"""The space of the cluster: each file system counts once, however many bookies or directories share it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bk_spark.wire.messages import BookieDirectory, entry_file_systems


@dataclass(frozen=True, slots=True)
class BookieSpace:
    """What one bookie tells of its disks."""

    bookie_id: str
    free_bytes: int
    """Of the directory with entry logs that has the least."""
    total_bytes: int
    directories: tuple[BookieDirectory, ...]
    """Empty if the bookie does not tell them: an older one, or one of Apache's."""


@dataclass(frozen=True, slots=True)
class ClusterSpace:
    """Sums over the file systems on which the bookies keep entries."""

    free_bytes: int
    total_bytes: int
    bookies: int
    file_systems: int
    """How many are counted. A bookie that does not tell counts as one of its own."""
    untold: int
    """Bookies among these that do not tell: if some of them share a file system, it is counted once for each."""


def cluster_space(bookies: Sequence[BookieSpace]) -> ClusterSpace:
    """Journals' disks do not count, because they hold no entries for long."""
    found: dict[str, tuple[int, int]] = {}
    untold = 0
    for bookie in bookies:
        told = entry_file_systems(bookie.directories)
        untold += not told
        for name, (free, total) in (told or {f"bookie {bookie.bookie_id}": (bookie.free_bytes, bookie.total_bytes)}).items():
            found[name] = (min(free, found.get(name, (free, total))[0]), total)
    free_bytes, total_bytes = (sum(one[place] for one in found.values()) for place in (0, 1))
    return ClusterSpace(free_bytes, total_bytes, len(bookies), len(found), untold)


def sharing(bookies: Iterable[BookieSpace]) -> Mapping[str, tuple[str, ...]]:
    """File system → the bookies that have a directory on it, by id."""
    found: dict[str, set[str]] = {}
    for bookie in bookies:
        for one in bookie.directories:
            if one.file_system:
                found.setdefault(one.file_system, set()).add(bookie.bookie_id)
    return {name: tuple(sorted(ids)) for name, ids in found.items()}
