"""``python -m tests.soak.directories.user KIND DIR``: opens the directory, then does what its input says, a line each.

KIND is ``embedded`` or ``cluster`` (a LocalCluster of this process). ``append ROW…`` confirms rows one by one, ``read`` reads
all. Each answer is a line of JSON: ``{"ready": …}``, ``{"confirmed": [rows], "error": …}``, ``{"rows": […]}``, or
``{"error": "Class: text"}``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from bk_spark import BookKeeper, LocalCluster
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError, NoSuchLogError

LOG = "rows"
QUICK = ClientConfig(add_timeout_s=10.0, add_quorum_timeout_s=20.0, read_timeout_s=10.0, recovery_timeout_s=30.0)


def main() -> None:
    kind, directory = sys.argv[1:]
    try:
        with contextlib.ExitStack() as held:
            is_embedded = kind == "embedded"
            uri = f"embedded:{directory}" if is_embedded else held.enter_context(LocalCluster(3, directory)).metadata_uri
            client = held.enter_context(BookKeeper(uri, QUICK))
            say({"ready": client.context.store.uri})
            for line in sys.stdin:
                word, *rows = line.split()
                say(append(client, rows) if word == "append" else read(client))
    except BookKeeperError as problem:
        say({"error": told(problem)})


def append(client: BookKeeper, rows: list[str]) -> dict[str, Any]:
    confirmed: list[str] = []
    try:
        with client.open_log(LOG, create=True).open_writer() as writer:
            for row in rows:
                writer.append(row.encode())
                confirmed.append(row)
    except BookKeeperError as problem:
        return {"confirmed": confirmed, "error": told(problem)}
    return {"confirmed": confirmed, "error": ""}


def read(client: BookKeeper) -> dict[str, Any]:
    try:
        found = client.open_log(LOG).read()
        return {"rows": [one.decode() for batch in found for one in batch.column("payload").to_pylist()]}
    except NoSuchLogError:
        return {"rows": []}
    except BookKeeperError as problem:
        return {"error": told(problem)}


def told(problem: BookKeeperError) -> str:
    return f"{type(problem).__name__}: {problem}"


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
