"""``python -m tests.cluster.gateway.dying_callers PORT LOG COUNT SEED``: callers that are killed in the middle of an append.

Each is a fork of this process, which has imported pyarrow and has used no gRPC. It appends batches and stops in the middle, or
a whole append with its end mark, and is killed by SIGKILL at a random moment: half of them with a connection that is then
reset, not closed. A whole append that was answered is told on standard output, by its number.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import sys
import time

import pyarrow as pa
import pyarrow.flight as flight

LONGEST_S = 1.5
"""After its first message a whole append is killed within this, and is answered in a third of it on a quiet machine."""


def main(port: int, log: str, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        is_whole, is_reset = chance.random() < 0.3, chance.random() < 0.5
        after_s = chance.random() * (LONGEST_S if is_whole else 0.1)
        begun, begins = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _append(port, log, number, is_whole, is_reset, begins)
            finally:
                os._exit(0)
        os.read(begun, 1)
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(begins)
    print("done", flush=True)


def _append(port: int, log: str, number: int, is_whole: bool, is_reset: bool, begins: int) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{port}")
    batch = pa.record_batch([[number] * 1000], names=["caller"])
    rows = {"rows": 3000} if number % 2 or not is_whole else {}
    command = json.dumps({"log": log, "application": [f"caller-{number}", 1], **rows}).encode()
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    if is_reset:
        _reset_at_the_end()
    os.write(begins, b"x")
    for sent in range(3):
        writer.write_batch(batch)
        if not is_whole and sent == 1:
            time.sleep(10)
    writer.write_metadata(b'{"end": true}')
    writer.done_writing()
    answers.read()
    os.write(1, f"{number}\n".encode())
    time.sleep(10)


def _reset_at_the_end() -> None:
    """Have the kernel reset the connection where it would close it."""
    for file in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(file))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            continue


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
