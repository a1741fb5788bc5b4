"""``bk-spark bench``: how fast a cluster takes and gives back entries, as one client sees it."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.commands.arguments import positive_count, positive_number, positive_size_bytes
from bk_spark.commands.bench_phases import BenchPhase, Load, Tell, read, read_singly, write
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_records, say
from bk_spark.commands.parsers import Commands, command
from bk_spark.config import MAX_BATCH_ENTRIES, MAX_ENTRY_BYTES
from bk_spark.errors import ConfigError

COLUMNS = ["phase", "entries", "seconds", "entries_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms"]
TEXT = (
    "write entries to one new ledger of this cluster, read them all back, then up to 1000 one by one, and print what came of "
    "each: entries and megabytes (10^6 bytes) a second, and the latency that 50, 99 and 99.9 per cent of the appends or reads "
    "stayed below, in milliseconds. The ledger is deleted at the end, also after Ctrl-C; the bookies' disks follow with their "
    "next garbage collection"
)


def add(commands: Commands) -> None:
    parser = command(commands, "bench", "measure this cluster: rates and latencies of adds and reads", run)
    parser.description = TEXT
    numbers = (
        (
            "--seconds",
            positive_number,
            10.0,
            "S",
            "write for this long, and read single entries no longer (default %(default)s s)",
        ),
        ("--entries", positive_count, None, "N", "write at most N entries (default: as many as fit into --seconds)"),
        (
            "--entry-bytes",
            positive_size_bytes,
            1024,
            "N",
            "payload of an entry (default %(default)s bytes, also as 4k; at most 16m)",
        ),
        ("--batch", positive_count, 100, "N", "entries of an append; 1: singly (default %(default)s)"),
        ("--rate", positive_number, None, "N", "entries a second at most (default: as many as the cluster confirms)"),
        (
            "--in-flight",
            positive_count,
            64,
            "N",
            "appends that wait for their confirmation; 1: one after the other (default %(default)s)",
        ),
        ("--ensemble-size", positive_count, 3, "E", "bookies that the ledger is spread over (default %(default)s)"),
        ("--write-quorum", positive_count, 3, "N", "bookies that hold each entry (default %(default)s)"),
        (
            "--ack-quorum",
            positive_count,
            2,
            "N",
            "bookies that have an entry on disk before it is confirmed (default %(default)s)",
        ),
    )
    for name, kind, default, metavar, text in numbers:
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)


def run(args: argparse.Namespace) -> None:
    load = _load(args)
    with bookkeeper(args) as client, _ended_by_sigterm(), ProgressBar() as progress:
        writer = client.create_ledger(args.ensemble_size, args.write_quorum, args.ack_quorum)
        say(f"ledger {writer.ledger_id}: {load.entry_bytes} bytes an entry, {load.batch_entries} entries an append")
        try:
            phases = _measure(client, writer, load, progress.show)
        finally:
            client.delete_ledger(writer.ledger_id)
    print_records([_record(phase) for phase in phases], COLUMNS, as_json=args.json)


def _measure(client: BookKeeper, writer: WriteHandle, load: Load, tell: Tell) -> list[BenchPhase]:
    with writer:
        written = write(writer, load, tell)
    with client.open_ledger(writer.ledger_id, recover=False) as reader:
        return [written, read(reader, written, tell), read_singly(reader, written.entries, load.seconds, tell)]


def _load(args: argparse.Namespace) -> Load:
    """Raises ConfigError."""
    load = Load(args.entry_bytes, args.batch, args.seconds, args.entries, args.rate, args.in_flight)
    if load.batch_entries > MAX_BATCH_ENTRIES:
        raise ConfigError("--batch", load.batch_entries, f"it must not exceed {MAX_BATCH_ENTRIES}")
    if load.entry_bytes * load.batch_entries > MAX_ENTRY_BYTES:
        nbytes = load.entry_bytes * load.batch_entries
        raise ConfigError("--batch times --entry-bytes", nbytes, f"an append must not exceed {MAX_ENTRY_BYTES} bytes")
    return load


def _record(phase: BenchPhase) -> dict[str, object]:
    """One line of the report. What was read from first to last has no latencies: there was one call."""
    rates = {"entries_per_s": phase.entries / phase.seconds, "mb_per_s": phase.nbytes / phase.seconds / 1e6}
    quantiles = phase.latencies.milliseconds((0.5, 0.99, 0.999))
    return {
        "phase": phase.name,
        "entries": phase.entries,
        "bytes": phase.nbytes,
        "seconds": round(phase.seconds, 3),
        **{name: float(f"{value:.4g}") for name, value in rates.items()},
        **dict(zip(("p50_ms", "p99_ms", "p999_ms"), quantiles, strict=True)),
    }


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that the ledger is deleted then too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
