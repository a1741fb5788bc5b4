"""Follow the event logs that Spark writes into a directory: each line becomes one entry of a log, exactly once.

    python examples/tail_event_log.py DIRECTORY --metadata zk://127.0.0.1:2181/ledgers --prefix events-

Spark writes one file for each application, ``<application id>.inprogress`` until the application ends, with

    spark.eventLog.enabled=true  spark.eventLog.compress=false  spark.eventLog.rolling.enabled=false
    spark.eventLog.dir=DIRECTORY

Each file becomes a log of its own, ``<prefix><application id>``: a driver that is started again is another application.
A line is appended once it has its newline. SIGTERM and Ctrl-C end the tailer after the lines that are complete by then.

It is exactly once even with SIGKILL at any moment, because the log itself is the only memory. A tailer that starts takes the
log over: ``open_writer`` fences the previous writer, so that its appends in flight are either in the log for good or never
will be, and no more can follow. Then it counts the log's rows and goes on with the line behind them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from bk_spark import BookKeeper, BookKeeperError
from bk_spark.log.log_handle import Log

RUNNING = ".inprogress"
POLL_S = 0.2
"""Time between two looks at the files."""
READ_BYTES = 256 * 1024
"""About how many bytes of lines are one append."""


class Tail:
    """Copies one event log file into one log. The constructor takes the log over."""

    def __init__(self, file: BinaryIO, log: Log) -> None:
        self._file = file
        self._partial = b""
        self._writer = log.open_writer()
        self._to_skip = log.snapshot().end_row
        """Lines that the log has already. Counted after the fence, so that no previous writer can add more."""

    def advance(self) -> bool:
        """Read a piece of the file and append the lines that end in it. False at the end of the file."""
        piece = self._file.read(READ_BYTES)
        *lines, self._partial = (self._partial + piece).split(b"\n")
        new, self._to_skip = lines[self._to_skip :], max(0, self._to_skip - len(lines))
        if new:
            self._writer.append_batch(new)
        return bool(piece)

    def close(self) -> None:
        """Close the log's ledger, so that readers know its end."""
        self._file.close()
        self._writer.close()


class Tailer:
    """Copies all files of a directory, also those that appear later."""

    def __init__(self, client: BookKeeper, directory: Path, prefix: str) -> None:
        self._client = client
        self._directory = directory
        self._prefix = prefix
        self._tails: dict[str, Tail] = {}
        self._finished: set[str] = set()

    def advance(self) -> bool:
        """Append the next piece of each file. False if there was nothing new."""
        moved = False
        for path in sorted(self._directory.iterdir()):
            application = path.name.removesuffix(RUNNING)
            if path.name.startswith(".") or application in self._finished or not path.is_file():
                continue
            if application in self._tails or self._open(application, path):
                moved |= self._advance(application, is_whole=path.name == application)
        return moved

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def _advance(self, application: str, is_whole: bool) -> bool:
        if self._tails[application].advance():
            return True
        if is_whole:
            self._tails.pop(application).close()
            self._finished.add(application)
        return False

    def _open(self, application: str, path: Path) -> bool:
        log = self._client.open_log(self._prefix + application, create=True)
        if path.name == application and _has_all(log, path):
            self._finished.add(application)
            return False
        try:
            self._tails[application] = Tail(path.open("rb"), log)
        except FileNotFoundError:  # Spark has just renamed it: the next look finds the final name
            return False
        return True


def _has_all(log: Log, path: Path) -> bool:
    """Whether the log is closed and has every line of a finished file, so that it need not be taken over."""
    snapshot = log.snapshot()
    with path.open("rb") as file:
        return not snapshot.open_ledgers and snapshot.end_row == sum(line.endswith(b"\n") for line in file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where Spark writes event logs")
    parser.add_argument("--metadata", required=True, help="the cluster, such as zk://127.0.0.1:2181/ledgers")
    parser.add_argument("--prefix", default="events-", help="of the names of the logs (default %(default)s)")
    args = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with BookKeeper(args.metadata) as client:
            tailer = Tailer(client, args.directory, args.prefix)
            while not stop.wait(POLL_S):
                while tailer.advance() and not stop.is_set():
                    pass
            while tailer.advance():
                pass
            tailer.close()
    except BookKeeperError as problem:
        print(f"{problem} (start it again: it goes on where the log ends)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
