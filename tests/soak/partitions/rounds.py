"""Rounds of faults of the network on one cluster, with a network namespace for each node. A round's history judges it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest import mock

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import BookieConfig
from bk_spark.local import cluster
from bk_spark.local.process import Keeper
from tests.soak.chaos.agents import AgentProcess, python_agent
from tests.soak.chaos.contest import SIDES, Contest
from tests.soak.chaos.duel_checker import DuelVerdict
from tests.soak.chaos.history import Recorder
from tests.soak.chaos.plan import ROLES
from tests.soak.chaos.rounds import Outcome, await_bookies, play_round
from tests.soak.chaos.slow_bookie import slow_bookie_command
from tests.soak.chaos.traces import Traces
from tests.soak.partitions.clock import Clock
from tests.soak.partitions.disk import leave_mounts
from tests.soak.partitions.fabric import Fabric, Node
from tests.soak.partitions.faults import Nemesis, Victims
from tests.soak.partitions.plan import BOOKIES, LIVES, SPARK, WITH_CLOCKS, PartitionPlan, clients
from tests.soak.partitions.processes import NetworkCluster
from tests.soak.partitions.spark_life import SparkLife, Streamed
from tests.soak.partitions.spoilt import BOOKIE, CLIENT, spoilt


class Arena:
    """The network, ZooKeeper, the bookies and the client processes. ``directory`` keeps their logs and all histories."""

    def __init__(self, directory: Path, seed: int, bug: str | None = None, apache: int = 0) -> None:
        """``bug``: one of spoilt.py that all clients, all bookies or both have. ``apache`` of the bookies are Apache's, which
        raises SkippedError where they are not to be had."""
        self.directory = directory
        self._bug = bug
        self.traces = None if apache else Traces(directory / "traces")
        """None if not all processes write down what they do."""
        (directory / "clocks").mkdir()
        self._clocks = {name: Clock(directory / "clocks" / name) for name in WITH_CLOCKS}
        leave_mounts()
        with contextlib.ExitStack() as undo:
            undo.enter_context(mock.patch.object(cluster, "bookie_command", self._bookie_command))
            self._keeper = undo.enter_context(Keeper(directory, temporary=False))
            self.fabric = undo.enter_context(Fabric(self._keeper, directory, seed))
            self.cluster = undo.enter_context(
                contextlib.closing(NetworkCluster(self._keeper, directory, self.fabric, self.dressed, apache))
            )
            self.client = undo.enter_context(BookKeeper(self.cluster.metadata_uri))
            self.alone = threading.Lock()
            self._sides = {side: self.fabric.add(side) for side in SIDES}
            self._spark = self.fabric.add(SPARK)
            self.casts = [undo.enter_context(contextlib.closing(Cast(self, life))) for life in range(LIVES)]
            self._undo = undo.pop_all()

    @property
    def victims(self) -> Victims:
        def registered() -> set[str]:
            return {one.bookie_id for one in self.client.list_bookies()}

        return Victims(self.fabric, self.cluster.servers, self._clocks, registered)

    def dressed(self, name: str, words: list[str]) -> list[str]:
        """A command of ours that is watched and has the clock of the node ``name``."""
        words = self._clocks[name].command(words)
        return words if self.traces is None else self.traces.command(name, words)

    def contest(self, directory: Path, seed: int) -> Contest:
        """A log, and two clients in nodes of their own that both want to lead it."""
        directory.mkdir()

        def command(side: str) -> list[str]:
            return self._clocks[side].command(self.agent_command(self._sides[side]))

        return Contest(self.cluster.metadata_uri, directory, seed, command)

    def spark(self, directory: Path) -> SparkLife:
        """A Spark driver with its executors, in a node of its own."""
        return SparkLife(self._keeper, self._spark, self.cluster.metadata_uri, directory)

    def agent_command(self, node: Node) -> list[str]:
        """Of a client in a node."""
        return spoilt(self._bug, CLIENT, [*node.prefix, *python_agent(self.cluster.metadata_uri)])

    def _bookie_command(self, data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
        command = slow_bookie_command(data_dir, metadata_uri, port, config)
        return self.dressed(data_dir.parent.name, spoilt(self._bug, BOOKIE, command))

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Cast:
    """The client processes of one life, each in a node of its own."""

    def __init__(self, arena: Arena, life: int) -> None:
        self._arena = arena
        self.client = arena.client
        self.bookies = arena.cluster.bookies
        self._nodes = dict(zip(ROLES, (arena.fabric.add(name) for name in clients(life)), strict=True))
        self._agents: dict[str, AgentProcess] = {}
        self.cast(())

    def cast(self, java_roles: Sequence[str]) -> None:
        for role in ROLES:
            self.agent(role)

    def agent(self, role: str) -> AgentProcess:
        if role not in self._agents or not self._agents[role].is_alive:
            if role in self._agents:
                self._agents[role].close()
            node = self._nodes[role]
            command = self._arena.dressed(node.name, self._arena.agent_command(node))
            self._agents[role] = AgentProcess(command, self._arena.directory / f"{node.name}.log")
        return self._agents[role]

    def await_bookies(self) -> None:
        await_bookies(self.client, len(self.bookies))

    def alone(self) -> AbstractContextManager[object]:
        return self._arena.alone

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()


class _Shared:
    """The faults of a round, as one of its lives sees them: they begin once all lives have begun."""

    def __init__(self, nemesis: Nemesis, begin: threading.Barrier) -> None:
        self.done: list[str] = []
        self._nemesis = nemesis
        self._begin = begin

    def start(self) -> None:
        self._begin.wait()

    def finish(self) -> None:
        self._nemesis.finish()


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    plan: PartitionPlan
    directory: Path
    lives: tuple[Outcome, ...]
    log: DuelVerdict
    streamed: Streamed | None
    """None in a round without Spark."""
    faults: tuple[str, ...]
    """The kinds of what was done, one for each time."""
    packets: Counter[str]
    """By what became of them."""
    seconds: float
    problems: tuple[str, ...] = ()
    """What servers did that none may do."""

    @property
    def violations(self) -> list[str]:
        found = [*self.problems]
        found += [str(one) for life in self.lives for one in life.verdict.violations]
        return found + [str(one) for one in self.log.violations] + (self.streamed.violations if self.streamed else [])


def run_round(arena: Arena, plan: PartitionPlan) -> PartitionOutcome:
    """Play a round and judge what came of it."""
    directory = arena.directory / f"round-{plan.seed}"
    directory.mkdir()
    recorder = Recorder(directory / "faults.jsonl", "faults")
    try:
        return _Round(arena, plan, directory, recorder).play()
    except Exception as problem:
        problem.add_note(f"in round {plan.seed} of the partitions, histories in {directory}, logs beside it")
        raise
    finally:
        recorder.close()


class _Round:
    def __init__(self, arena: Arena, plan: PartitionPlan, directory: Path, recorder: Recorder) -> None:
        self._arena = arena
        self._plan = plan
        self._directory = directory
        self._nemesis = Nemesis(arena.victims, plan.faults, recorder)
        self._begin = threading.Barrier(LIVES, action=self._nemesis.start)

    def play(self) -> PartitionOutcome:
        started, before = time.monotonic(), self._arena.fabric.counts()
        await_bookies(self._arena.client, len(BOOKIES))
        contest = self._arena.contest(self._directory / "log", self._plan.seed)
        spark = self._arena.spark(self._directory / "spark") if self._plan.has_spark else None
        with contextlib.ExitStack() as stack:
            if spark is not None:
                stack.enter_context(spark.held())
            stack.enter_context(contest.held())
            with ThreadPoolExecutor(LIVES) as threads:
                lives = tuple(threads.map(self._live, range(LIVES)))
            contest.stop()
            if self._arena.traces is not None:
                lives = tuple(life.judged(self._arena.traces, self._arena.client) for life in lives)
                self._arena.traces.forget()
            streamed = spark.finish(self._arena.client) if spark is not None else None
        return PartitionOutcome(
            self._plan,
            self._directory,
            lives,
            contest.judged(),
            streamed,
            tuple(self._nemesis.done),
            self._arena.fabric.counts() - before,
            time.monotonic() - started,
            tuple(self._nemesis.problems),
        )

    def _live(self, life: int) -> Outcome:
        place = self._directory / f"life-{life}"
        place.mkdir()
        shared, recorder = _Shared(self._nemesis, self._begin), Recorder(place / "round.jsonl", "round")
        try:
            return play_round(self._arena.casts[life], self._plan.lives[life], shared, recorder)
        except BaseException:
            self._begin.abort()  # or the others would wait for it
            raise
