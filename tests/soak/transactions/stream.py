"""``python -m tests.soak.transactions.stream --kills 30 --seed 1``: a stream into 20 logs, whose driver is killed.

Each row must be there once, and each batch in all of its logs or in none, for a reader that never stops looking. Exits with 1
if that did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from bk_spark import BookKeeper, LocalCluster
from bk_spark.errors import NoSuchLogError
from tests.checkout import ROOT
from tests.soak.transactions.rows import INTO, SOURCE

PATIENCE_S = 900.0


class StreamRun:
    def __init__(self, uri: str, folder: str, seed: int) -> None:
        self._uri = uri
        self._checkpoint = f"{folder}/checkpoint"
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._appended = 0
        self._looked = dict.fromkeys(INTO, 0)
        """The last version of each log that was looked at."""
        self.counts: Counter[str] = Counter()
        self.differences: list[str] = []

    def play(self, kills: int) -> None:
        with BookKeeper(self._uri) as client:
            self._append_some(client)
            threads = [threading.Thread(target=one) for one in (self._append, self._look)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(kills):
                    self._kill_one()
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            self._drain()
            self._check_end(client)

    def _kill_one(self) -> None:
        with self._driver() as driver:
            assert driver.stdout is not None
            line = driver.stdout.readline()
            if "started" not in line:
                self.differences.append(f"a driver ended by itself: {driver.stderr.read()[-2000:] if driver.stderr else ''}")
                return
            self._over.wait(self._chance.uniform(0.0, 12.0))
            os.killpg(driver.pid, signal.SIGKILL)
        self.counts["kills"] += 1

    def _driver(self, *more: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "tests.soak.transactions.driver", self._uri, self._checkpoint, *more]
        stderr = subprocess.DEVNULL if not more else None
        return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True)

    def _drain(self) -> None:
        with self._driver("--drain") as driver:
            if driver.wait(PATIENCE_S):
                self.differences.append(f"the last driver failed ({driver.returncode})")

    def _append(self) -> None:
        with BookKeeper(self._uri) as client:
            while not self._over.wait(0.3):
                self._append_some(client)

    def _append_some(self, client: BookKeeper) -> None:
        count = self._chance.randint(10, 80)
        rows = pa.table({"id": pa.array(range(self._appended, self._appended + count), pa.int64())})
        client.append_rows(SOURCE, rows, create=True)
        self._appended += count

    def _look(self) -> None:
        with BookKeeper(self._uri) as client:
            while not self._over.is_set():
                try:
                    self._check_versions(client, client.versions_of(INTO))
                    self.counts["looks"] += 1
                except NoSuchLogError:
                    self.counts["looks before all logs were there"] += 1
                    self._over.wait(0.5)

    def _check_versions(self, client: BookKeeper, versions: Mapping[str, int]) -> None:
        """No log has a batch that another log of the batch does not have yet."""
        uids = {name: client.logs.names.uid(name) for name in versions}
        of_uid = {uids[name]: version for name, version in versions.items()}
        for name, version in versions.items():
            for one in client.logs.reader.versions(name, uids[name], self._looked[name] + 1, version):
                made = one.transaction
                if made is None:
                    self.differences.append(f"version {one.version} of {name} is of no transaction")
                elif any(of_uid[change.uid] < change.version for change in made.changes):
                    self.differences.append(f"version {one.version} of {name} is in one that other logs do not have: {made}")
            self._looked[name] = version

    def _check_end(self, client: BookKeeper) -> None:
        found = Counter(client.read_rows(INTO).read_all().column("id").to_pylist())
        twice = [one for one, count in found.items() if count > 1]
        missing = [one for one in range(self._appended) if one not in found]
        if twice or missing or len(found) != self._appended:
            self.differences.append(f"{len(twice)} rows are there twice ({twice[:5]}), {len(missing)} not ({missing[:5]})")
        batches = set()
        for name in INTO:
            for version in client.open_log(name).versions():
                assert version.transaction is not None, "only the stream writes"
                batches.add(version.transaction.application)
        self.counts |= Counter({"rows": self._appended, "batches": len(batches)})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.transactions.stream", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory(prefix="stream-") as folder:
        run = StreamRun(cluster.metadata_uri, folder, args.seed)
        run.play(args.kills)
    print(", ".join(f"{what} {count}" for what, count in sorted(run.counts.items())))
    for difference in run.differences[:20]:
        print(f"DIFFERS {difference}")
    print(f"differences: {len(run.differences)}")
    return 1 if run.differences else 0


if __name__ == "__main__":
    sys.exit(main())
