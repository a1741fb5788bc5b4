"""``python -m tests.soak.embedded.user DIR OUT``: reads what is in a log of rows, then appends to it until it is killed.

Prints the seconds from its first import to the first row back. What is confirmed is written to OUT, a number a line.
"""

import time

STARTED_S = time.monotonic()

import os  # noqa: E402
import sys  # noqa: E402

import pyarrow as pa  # noqa: E402

from bk_spark import BookKeeper  # noqa: E402


def main() -> None:
    directory, path = sys.argv[1:]
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with BookKeeper(f"embedded:{directory}") as bookkeeper:
        log = bookkeeper.open_log("numbers", create=True)
        if log.snapshot().content is None:
            log.append_rows(pa.table({"number": [0]}))
        found = log.read_rows().read_all().column("number").to_pylist()
        print(f"{time.monotonic() - STARTED_S:.2f}", *found, flush=True)
        number = found[-1] + 1
        while True:
            log.append_rows(pa.table({"number": [number]}))
            os.write(out, f"{number}\n".encode())
            number += 1


if __name__ == "__main__":
    main()
