"""Every benchmark but those beside peers, one after the other: each file here, growth at a tenth of the full size, then the
workloads of ``benchmarks.speed``.

python benchmarks/run_all.py [--small] [--json FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALONE = sorted(path for path in HERE.glob("*.py") if path.name not in ("run_all.py", "__init__.py"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="each as small as it goes")
    parser.add_argument("--json", metavar="FILE", help="where the result of the workloads is written")
    args = parser.parse_args()
    small = ["--small"] if args.small else []
    commands = {path.stem: [str(path), *small] for path in ALONE}
    commands["scale"] = ["-m", "benchmarks.scale", *(small or ["--ledgers", "100000"])]
    commands["speed"] = ["-m", "benchmarks.speed", "--all", *small, *(["--json", args.json] if args.json else [])]
    failed = []
    for name, command in commands.items():
        print(f"=== {name}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=HERE.parent, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
