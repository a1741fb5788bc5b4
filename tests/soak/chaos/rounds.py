"""One round after the other on one cluster of real processes, each judged by what was recorded of it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from unittest import mock

from benchmarks.peers.bookkeeper_cluster import ApacheBookie
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import BookieConfig
from bk_spark.local import cluster
from bk_spark.local.cluster import LocalCluster
from tests.interop.apache import apache_beside
from tests.soak.chaos import history
from tests.soak.chaos.agents import START_S, AgentProcess, Task, python_agent
from tests.soak.chaos.checker import Verdict, check
from tests.soak.chaos.faults import Bookie, Nemesis
from tests.soak.chaos.history import Recorder, last_confirmed, read_events
from tests.soak.chaos.java_agents import compiled_agents
from tests.soak.chaos.plan import FIRST, ROLES, SECOND, WRITER, RoundPlan
from tests.soak.chaos.slow_bookie import slow_bookie_command
from tests.soak.chaos.traces import Traces

DEADLINE_S = 45.0
"""For everything to end after the faults did. A recovery gives up and begins anew after 8 s without progress (workload.py)."""

RECOVERER_LIFE_S = 0.03
"""Of a recoverer that is killed: in the middle of most recoveries."""


class Stage(Protocol):
    """What a round needs: bookies, and processes for its roles."""

    client: BookKeeper

    @property
    def bookies(self) -> Sequence[Bookie]:
        """All of the cluster's."""

    def cast(self, java_roles: Sequence[str]) -> None:
        """Say which roles Java plays from now on, and start the processes that are missing."""

    def agent(self, role: str) -> AgentProcess:
        """The client process that plays this role; a new one in place of one that was killed."""

    def await_bookies(self) -> None:
        """Until every bookie is on the list: a session that was lost in a fault is replaced soon after it."""

    def alone(self) -> AbstractContextManager[object]:
        """While it lasts, no other round suspends a bookie."""


class Trouble(Protocol):
    """The faults of a round."""

    done: list[str]
    """The kinds of those that took place."""

    def start(self) -> None:
        """Begin to count their times."""

    def finish(self) -> None:
        """Return once all are undone and everything serves again."""


class Arena:
    """The cluster and the client processes. ``directory`` keeps their logs and the histories of all rounds.

    ``apache`` of the bookies are Apache's, the others ours. With ``java`` Apache's client can play roles. Raises SkippedError
    where Apache's are not to be had.
    """

    def __init__(self, directory: Path, bookies: int, apache: int = 0, *, java: bool = False) -> None:
        self.directory = directory
        self.traces = None if apache or java else Traces(directory / "traces")
        """None if not all processes write down what they do."""
        self._agents: dict[tuple[str, bool], AgentProcess] = {}
        self._java_roles: tuple[str, ...] = ()
        with contextlib.ExitStack() as undo:
            undo.enter_context(mock.patch.object(cluster, "bookie_command", self._bookie_command))
            self.cluster = undo.enter_context(LocalCluster(bookies - apache, directory / "cluster"))
            self.bookies: list[Bookie] = list(self.cluster.bookies)
            if apache:
                self.bookies += undo.enter_context(_started(self.cluster, directory / "apache", apache))
            self.client = undo.enter_context(BookKeeper(self.cluster.metadata_uri))
            self._java = compiled_agents(self.cluster.metadata_uri, directory / "classes") if java else None
            undo.callback(self._close_agents)
            self.cast(())
            self._undo = undo.pop_all()

    def cast(self, java_roles: Sequence[str]) -> None:
        self._java_roles = tuple(java_roles)
        for role in ROLES:
            self.agent(role)

    def agent(self, role: str) -> AgentProcess:
        key = role, role in self._java_roles
        if key not in self._agents or not self._agents[key].is_alive:
            if key in self._agents:
                self._agents[key].close()
            self._agents[key] = self._started_agent(*key)
        return self._agents[key]

    def _bookie_command(self, data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
        command = slow_bookie_command(data_dir, metadata_uri, port, config)
        return command if self.traces is None else self.traces.command(f"bookie-{port}", command)

    def _started_agent(self, role: str, is_java: bool) -> AgentProcess:
        if not is_java:
            command = python_agent(self.cluster.metadata_uri)
            command = command if self.traces is None else self.traces.command(role, command)
            return AgentProcess(command, self.directory / f"{role}.log")
        assert self._java is not None, "the arena was made without Java"
        return AgentProcess(self._java.command(role), self.directory / f"{role}-java.log")

    def await_bookies(self) -> None:
        await_bookies(self.client, len(self.bookies))

    def alone(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._undo.close()

    def _close_agents(self) -> None:
        for agent in self._agents.values():
            agent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def await_bookies(client: BookKeeper, count: int) -> None:
    """Until so many bookies are on the list."""
    deadline = time.monotonic() + DEADLINE_S
    while len(client.list_bookies()) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all bookies are registered: {client.list_bookies()}")
        time.sleep(0.05)


@contextlib.contextmanager
def _started(cluster: LocalCluster, directory: Path, count: int) -> Iterator[list[ApacheBookie]]:
    """Apache's bookies in a cluster of ours."""
    # A killed one is back after a round's second, not after ten. With AutoRecovery inside, one that was suspended until its
    # session expired ends (AutoRecoveryMain's AutoRecoveryDeathWatcher). tests/interop/test_repair.py tries AutoRecovery.
    with apache_beside(cluster, directory, count, {"zkTimeout": "4000"}) as apache:
        for bookie in apache.bookies:
            bookie.start()
        yield list(apache.bookies)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    plan: RoundPlan
    directory: Path
    verdict: Verdict
    faults: tuple[str, ...]
    """The kinds of what was done, one for each time."""
    seconds: float
    ledger_id: int
    steps: int | None = None
    """That were held against the specification; None if not all processes wrote down theirs."""

    def judged(self, traces: Traces, client: BookKeeper) -> Outcome:
        """With what the specification says of the round."""
        steps, problem = traces.judge(client, self.ledger_id, self.directory / "actions.txt")
        self.verdict.violations += [] if problem is None else [problem]
        return dataclasses.replace(self, steps=steps)


def run_round(arena: Arena, plan: RoundPlan) -> Outcome:
    """Play a round and judge it. An error that the round itself fails with, such as a bookie that does not start, names it."""
    directory = arena.directory / f"round-{plan.seed}"
    directory.mkdir()
    recorder = Recorder(directory / "round.jsonl", "round")
    nemesis = Nemesis(arena.cluster, arena.bookies, plan.faults, recorder)
    outcome = play_round(arena, plan, nemesis, recorder)
    if arena.traces is None:
        return outcome
    outcome = outcome.judged(arena.traces, arena.client)
    arena.traces.forget()
    return outcome


def play_round(stage: Stage, plan: RoundPlan, trouble: Trouble, recorder: Recorder) -> Outcome:
    """The same with any stage and trouble. What ``recorder`` records to lies in the round's own directory."""
    directory, started = recorder.path.parent, time.monotonic()
    played = _Round(stage, plan, trouble, recorder)
    try:
        played.play()
    except Exception as problem:
        problem.add_note(f"in round {plan.seed} of the chaos test, histories in {directory}, logs beside it")
        raise
    verdict = check(history.load(directory))
    return Outcome(plan, directory, verdict, tuple(played.faults), time.monotonic() - started, played.ledger_id)


class _Round:
    def __init__(self, stage: Stage, plan: RoundPlan, trouble: Trouble, recorder: Recorder) -> None:
        self.faults: list[str] = []
        self._stage = stage
        self._plan = plan
        self._trouble = trouble
        self._recorder = recorder
        self._directory = recorder.path.parent
        self._random = random.Random(plan.seed)
        self._late: list[str] = []

    @property
    def ledger_id(self) -> int:
        return self._writer.ledger_id

    def play(self) -> None:
        self._stage.await_bookies()
        self._stage.cast(self._plan.java_roles)
        self._recorder.record(history.PLAN, **self._plan.facts())
        self._writer = self._start_writing()
        self._follower = self._start(SECOND, "follow", "follower", writer_file=str(self._file("writer")))
        self._await_first_confirmation()
        self._trouble.start()
        self._writer.ended.wait(self._plan.load_s)
        self._end_writing()
        recoverers = self._start_recoverers()
        self._trouble.finish()
        self.faults += self._trouble.done
        self._recorder.record(history.FAULTS_ENDED)
        self._await(recoverers)
        if self._plan.end == "frozen":
            self._stage.agent(WRITER).resume()
        self._await([self._writer, self._follower])
        if not self._late:
            with self._stage.alone():
                self._read_twice()
        self._recorder.record(history.DONE, late=self._late)
        self._recorder.close()

    def _file(self, who: str) -> Path:
        return self._directory / f"{who}.jsonl"

    def _start(self, agent: str, task: str, who: str, **facts: object) -> Task:
        ledger_id = self._writer.ledger_id
        return self._stage.agent(agent).start(task, self._file(who), who, ledger_id=ledger_id, **facts)

    def _start_writing(self) -> Task:
        load = dataclasses.asdict(self._plan.load)
        task = self._stage.agent(WRITER).start("write", self._file("writer"), "writer", load=load, end=self._plan.end)
        if not task.began.wait(START_S) or task.ledger_id < 0:
            raise RuntimeError(f"no ledger was created: {task.problem}")
        return task

    def _await_first_confirmation(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._plan.starts_cold and last_confirmed(read_events(self._file("writer"))) < 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was confirmed within {DEADLINE_S:g} s, without any fault")
            time.sleep(0.01)

    def _end_writing(self) -> None:
        agent, end = self._stage.agent(WRITER), self._plan.end
        if end == "killed":
            agent.kill()
        elif end == "frozen":
            agent.suspend()
        elif end in ("closed", "closed early"):
            self._writer.stop()
        if end in ("killed", "frozen"):
            self.faults.append(f"writer {end}")

    def _start_recoverers(self) -> list[Task]:
        """All in time order, every other one in another process; then perhaps the first one's process is killed."""
        tasks, start = [], time.monotonic()
        for (number, after_s), agent in zip(enumerate(sorted(self._plan.recoverers)), itertools.cycle((FIRST, SECOND))):
            time.sleep(max(0.0, start + after_s - time.monotonic()))
            tasks.append(self._start(agent, "recover", f"recoverer-{number}"))
        if self._plan.kills_recoverer:
            time.sleep(RECOVERER_LIFE_S)
            self._stage.agent(FIRST).kill()
            self.faults.append("recoverer killed")
        return tasks

    def _read_twice(self) -> None:
        """Two readers, each with another bookie suspended where every entry is promised to be on more than one."""
        metadata = self._stage.client.ledger_metadata(self._writer.ledger_id)
        holders = sorted({bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble})
        away = self._random.sample(holders, 2) if metadata.ack_quorum > 1 else [None, None]
        for agent, bookie_id in zip((FIRST, SECOND), away, strict=True):
            bookie = self._bookie(bookie_id)
            if bookie is not None:
                bookie.suspend()
            self._await([self._start(agent, "read", f"reader-{agent}")])
            if bookie is not None:
                bookie.resume()

    def _bookie(self, bookie_id: str | None) -> Bookie | None:
        return next((bookie for bookie in self._stage.bookies if bookie.bookie_id == bookie_id), None)

    def _await(self, tasks: Sequence[Task]) -> None:
        """What is late is remembered, and ends with its process."""
        deadline = time.monotonic() + DEADLINE_S
        for task in tasks:
            if not task.await_end(deadline):
                self._late.append(task.who)
                task.kill()
