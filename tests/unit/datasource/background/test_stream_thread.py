"""The one thread of a stream, with very many logs."""

from __future__ import annotations

import threading

from bk_spark.datasource.background.stream_thread import StreamThread

WAIT_S = 20.0


class Idle:
    """Work without anything to do. Counts how often it was compared with other work, and how often it was looked at."""

    compared = 0

    def __init__(self) -> None:
        self.looks = 0
        self.looked = threading.Event()
        self.ended = threading.Event()

    def __eq__(self, other: object) -> bool:
        Idle.compared += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def wait_s(self) -> float:
        self.looks += 1
        self.looked.set()
        return 60.0

    def step(self) -> None:
        raise AssertionError("nothing is due")

    def end(self) -> None:
        self.ended.set()


def test_a_look_at_many_logs_compares_none_of_them_with_another_one() -> None:
    """With 1,000 logs that would be half a million comparisons, thirty times a second."""
    thread, work = StreamThread("test"), [Idle() for _ in range(5)]
    for one in work:
        thread.add(one)
    for _ in range(3):
        work[-1].looked.clear()
        thread.wake()
        assert work[-1].looked.wait(WAIT_S)
    thread.remove(work[0])
    assert work[0].ended.wait(WAIT_S)
    thread.stop()
    assert all(one.ended.wait(WAIT_S) for one in work)
    assert Idle.compared == 0


def test_work_that_was_removed_is_ended_once_and_no_other() -> None:
    thread, work = StreamThread("test"), [Idle() for _ in range(3)]
    for one in work:
        thread.add(one)
    assert work[2].looked.wait(WAIT_S)
    thread.remove(work[1])
    assert work[1].ended.wait(WAIT_S)
    assert not work[0].ended.is_set()
    assert not work[2].ended.is_set()
    thread.stop()
    assert all(one.ended.wait(WAIT_S) for one in work)
