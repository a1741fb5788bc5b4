"""A client process of the chaos test: carries out commands, one JSON object a line on standard input.

``{"call": 1, "task": "recover", "file": …, "who": …, …}`` starts a task in a thread of its own; ``{"stop": 1}`` asks it to end.
Each task answers on standard output with ``{"call": 1, "problem": null}`` when it has ended; ``write`` also answers with
``{"call": 1, "ledger_id": …}`` once there is a ledger. One BookKeeper serves all tasks, through everything that happens to the
cluster. The process ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import MetadataUnavailableError
from tests.soak.chaos import workload
from tests.soak.chaos.agents import START_S
from tests.soak.chaos.duellist import Duellist
from tests.soak.chaos.history import Recorder
from tests.soak.chaos.plan import Load

Command = dict[str, Any]


class Agent:
    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._stops: dict[int, threading.Event] = {}
        self._tasks: dict[str, Callable[[Command, Recorder, threading.Event], None]] = {
            "write": self._write,
            "recover": lambda command, recorder, stop: workload.recover(client, recorder, command["ledger_id"], stop),
            "read": lambda command, recorder, stop: workload.read_all(client, recorder, command["ledger_id"], stop),
            "follow": self._follow,
            "duel": lambda command, recorder, stop: Duellist(client, recorder, command["log"], command["seed"]).fight(stop),
        }

    def obey(self, command: Command) -> None:
        if "stop" in command:
            self._stops[command["stop"]].set()
            return
        stop = self._stops[command["call"]] = threading.Event()
        threading.Thread(target=self._carry_out, args=(command, stop), daemon=True).start()

    def _carry_out(self, command: Command, stop: threading.Event) -> None:
        recorder = Recorder(Path(command["file"]), command["who"])
        problem = None
        try:
            self._tasks[command["task"]](command, recorder, stop)
        except Exception:  # the round's thread raises it again
            problem = traceback.format_exc()
        recorder.close()
        _answer(call=command["call"], problem=problem)

    def _write(self, command: Command, recorder: Recorder, stop: threading.Event) -> None:
        writer = workload.Writer(self._client, recorder, Load(**command["load"]))
        _answer(call=command["call"], ledger_id=writer.handle.ledger_id)
        writer.write(stop)
        if command["end"] == "closed early":
            writer.close()
        writer.await_answers()
        if command["end"] == "closed":
            writer.close()

    def _follow(self, command: Command, recorder: Recorder, stop: threading.Event) -> None:
        workload.Follower(self._client, recorder, command["ledger_id"], Path(command["writer_file"])).follow(stop)


_output = threading.Lock()


def _answer(**facts: Any) -> None:
    with _output:
        print(json.dumps(facts), flush=True)


def connected(metadata_uri: str) -> BookKeeper:
    """Also if ZooKeeper is away at this moment: faults last longer than a client waits for it."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return BookKeeper(metadata_uri, workload.CONFIG)
        except MetadataUnavailableError:
            if time.monotonic() > deadline:
                raise


def main(metadata_uri: str) -> None:
    with connected(metadata_uri) as client:
        agent = Agent(client)
        for line in sys.stdin:
            agent.obey(json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
