"""``python -m tests.soak.directories --minutes N --seed S``: random programs over directories of clusters, one by one.

Each has ROUND_STEPS steps in a new folder, and ends with nothing running. Prints what was done, and steps an hour. Exit status
1 for a finding, with the seed and the steps of its round; the folder is kept. ``--bug NAME`` puts a deliberate bug in, which
has to be found within MOST_STEPS.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.soak.directories.bugs import BUGS, package_with
from tests.soak.directories.processes import Finding, kill_all, living
from tests.soak.directories.world import World

ROUND_STEPS = 40
MOST_STEPS = 400
SMALL_DISK = "size=1500m"
"""Of a tmpfs for every other round: a cluster takes some megabytes."""


def run_round(seed: int, steps: int, code: Path, folder: Path, out: object = sys.stdout) -> tuple[World, str]:
    """The world at its end, and what was found; "" for nothing."""
    said: list[str] = []
    world = World(folder, seed, code, said.append)
    world.small_disk = seed % 2 == 0 and _mounted(folder)
    found = ""
    try:
        for _ in range(steps):
            world.step()
        world.end()
    except Finding as problem:
        found = "\n".join([*said, f"FOUND: {problem}"])
    finally:
        for user in world.users:
            user.kill()
        while pids := living(folder):
            kill_all(pids)
            time.sleep(0.05)
        if found:
            _keep(folder, seed)
        if world.small_disk:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return world, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", choices=["", *BUGS], default="")
    args = parser.parse_args()
    done: collections.Counter[str] = collections.Counter()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bk_spark-bug-") as code:
        package = package_with(args.bug, Path(code))
        for seed in range(args.seed, args.seed + 1_000_000):
            world, found = run_round(seed, ROUND_STEPS, package, Path(tempfile.mkdtemp(prefix="bk_spark-directories-")))
            done += world.done
            elapsed_s = time.monotonic() - began_s
            facts = {"seed": seed, "steps": sum(done.values()), "steps an hour": round(sum(done.values()) / elapsed_s * 3600)}
            if found:
                print(found)
                print(json.dumps({**facts, "bug": args.bug, "found": found.splitlines()[-1]}), flush=True)
                return 0 if args.bug else 1
            print(json.dumps(facts), flush=True)
            if sum(done.values()) >= MOST_STEPS if args.bug else elapsed_s >= args.minutes * 60:
                break
    print(json.dumps({**facts, "done": dict(done)}))
    return 1 if args.bug else 0


def _mounted(folder: Path) -> bool:
    if os.geteuid():
        return False
    command = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "none", str(folder)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _keep(folder: Path, seed: int) -> None:
    with suppress(OSError, shutil.Error):
        shutil.copytree(folder, f"{folder}-found-{seed}", symlinks=True)


if __name__ == "__main__":
    sys.exit(main())
