"""One operation, in this process: ``python -m benchmarks.scale.one NAME SITE OUT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.scale import operations
from benchmarks.scale.operation import OPERATIONS, Site

operations.load()


def main() -> None:
    name, site, out = sys.argv[1:]
    given = json.loads(site)
    OPERATIONS[name].run_here(Site(**{**given, "bookies": tuple(given["bookies"])}), Path(out))


if __name__ == "__main__":
    main()
