"""Every benchmark, one after the other, each in a process of its own.

python benchmarks/run_all.py [--small]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="each as small as it goes")
    args = parser.parse_args()
    failed = []
    for path in sorted(path for path in HERE.glob("*.py") if path != Path(__file__)):
        print(f"=== {path.stem}", flush=True)
        if subprocess.run([sys.executable, str(path), *(["--small"] if args.small else [])], check=False).returncode:
            failed.append(path.stem)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
