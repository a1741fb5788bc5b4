"""A file system that several bookies share counts once."""

from __future__ import annotations

from bk_spark.dashboard.space import BookieSpace, ClusterSpace, cluster_space, sharing
from bk_spark.wire.messages import BookieDirectory


def _bookie(name: str, *directories: tuple[str, str, int, int], free: int = 50, total: int = 100) -> BookieSpace:
    """Directories are (uses, file system, free, total)."""
    told = tuple(BookieDirectory(f"/{place}", *one) for place, one in enumerate(directories))
    return BookieSpace(name, free, total, told)


def test_a_file_system_counts_once_however_many_bookies_and_directories_are_on_it() -> None:
    one = _bookie("b1", ("data entry_log-0", "boot:1", 40, 100), ("entry_log-1", "boot:1", 40, 100))
    other = _bookie("b2", ("data entry_log-0", "boot:1", 38, 100), ("entry_log-1", "boot:2", 10, 50))
    assert cluster_space([one, other]) == ClusterSpace(48, 150, bookies=2, file_systems=2, untold=0)


def test_the_disks_of_journals_do_not_count() -> None:
    assert cluster_space([_bookie("b1", ("entry_log-0", "boot:1", 40, 100), ("journal-0", "boot:2", 9, 10))]).total_bytes == 100


def test_a_bookie_that_does_not_tell_counts_by_itself_and_is_said_to() -> None:
    """An older bookie, one of Apache's, and one that does not know its file system."""
    found = cluster_space(
        [_bookie("old"), _bookie("b2", ("entry_log-0", "", 40, 100)), _bookie("b3", ("entry_log-0", "b:1", 7, 9))]
    )
    assert found == ClusterSpace(107, 209, bookies=3, file_systems=3, untold=2)


def test_a_directory_that_was_not_measured_does_not_count_as_empty() -> None:
    found = cluster_space([_bookie("b1", ("entry_log-0", "boot:1", 0, 0), free=30, total=60)])
    assert (found.free_bytes, found.total_bytes, found.untold) == (30, 60, 1)


def test_it_is_told_who_shares_a_file_system() -> None:
    bookies = [_bookie("b2", ("journal-0", "boot:1", 1, 2)), _bookie("b1", ("entry_log-0", "boot:1", 1, 2), ("data", "", 1, 2))]
    assert sharing(bookies) == {"boot:1": ("b1", "b2")}


def test_no_bookies_have_no_space() -> None:
    assert cluster_space([]) == ClusterSpace(0, 0, 0, 0, 0)
