"""Which gRPC server suits a bookie, `grpc.aio` or the bounded synchronous one, and which client?

A bookie has few, long-lived add streams, long reads, and now and then a fence that must not
wait.  Both servers here do the same work: every entry that arrives goes to one plain thread which
commits all that waits with one write and one fdatasync, then says so to the streams it came from.
They differ only in who reads and writes the streams: one event loop, or two threads a stream (the
synchronous API gives a handler one thread, and blocks it either in a read or in a write).

Measured, each server with each client (an event loop in a background thread, or the synchronous
API), in turn, so that whatever else runs on the machine falls on all of them alike:

* pipelined adds over one stream, large and small, with an acknowledgement for each entry or one
  for everything a commit covered, and the CPU time of the server;
* the round trip of one small add at a time, idle and beside long reads by another process;
* threads in the server with many idle streams open, and whether a fence is answered then;
* channel options, one at a time, against none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import multiprocessing
import os
import platform
import queue
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent import futures
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
import grpc.experimental

T = TypeVar("T")
Sink = Callable[[int], None]
Options = tuple[tuple[str, int | str], ...]

KIB = 1024
MIB = 1024 * KIB
SERVICE = "benchmark.Bookie"
ADD_EACH = "AddEach"
ADD_GROUPED = "AddGrouped"
READ = "Read"
FENCE = "Fence"
READ_MESSAGES = 64
SETTLE_SECONDS = 0.5
JOURNAL_BYTES = 256 * MIB
SMALL_ENTRY = bytes(400)
LARGE_ENTRY = bytes(MIB)
UNLIMITED: Options = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class ServerSpec:
    """How to start a server."""

    kind: str
    directory: str
    sync: bool = True
    workers: int = 64
    options: Options = UNLIMITED


@dataclass(frozen=True)
class Pipeline:
    """Adds to send over one stream, with at most `window` of them not yet acknowledged."""

    name: str
    method: str
    entry: bytes
    count: int
    window: int


@dataclass(frozen=True)
class Scale:
    """How much of everything to measure."""

    runs: int
    large: int
    small: int
    round_trips: int
    busy_seconds: float
    idle_streams: int
    readers: int
    fence_seconds: float
    option_sets: int


FULL = Scale(5, 192, 16_000, 500, 2.0, 200, 32, 2.0, 99)
SMALL = Scale(1, 8, 500, 50, 0.2, 80, 8, 0.5, 3)


# --- what both servers share ------------------------------------------------------------------


class Journal:
    """One thread that commits everything that waits, then reports how much was for which sink."""

    def __init__(self, spec: ServerSpec, report: Callable[[Counter[Sink]], None]) -> None:
        self._file = os.open(Path(spec.directory, spec.kind), os.O_RDWR | os.O_CREAT)
        self._sync = spec.sync
        self._report = report
        self._waiting: queue.SimpleQueue[tuple[bytes, Sink]] = queue.SimpleQueue()
        self._offset = 0
        threading.Thread(target=self._commit_forever, name="journal", daemon=True).start()

    def submit(self, entry: bytes, sink: Sink) -> None:
        self._waiting.put((entry, sink))

    def _commit_forever(self) -> None:
        while True:
            group = [self._waiting.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    group.append(self._waiting.get_nowait())
            self._commit(b"".join(entry for entry, _ in group))
            self._report(Counter(sink for _, sink in group))

    def _commit(self, data: bytes) -> None:
        if self._offset + len(data) > JOURNAL_BYTES:
            self._offset = 0
        self._offset += os.pwrite(self._file, data, self._offset)
        if self._sync:
            os.fdatasync(self._file)


def acknowledgements(committed: int, each: bool) -> list[int]:
    return [1] * committed if each else [committed]


def encode(count: int) -> bytes:
    return count.to_bytes(4, "little")


def decode(message: bytes) -> int:
    return int.from_bytes(message, "little")


# --- the event-loop server --------------------------------------------------------------------


def serve_aio(spec: ServerSpec, started: Connection) -> None:
    asyncio.run(_serve_aio(spec, started))


async def _serve_aio(spec: ServerSpec, started: Connection) -> None:
    loop = asyncio.get_running_loop()
    journal = Journal(spec, lambda counts: void(loop.call_soon_threadsafe(deliver, counts)))
    server = grpc.aio.server(options=spec.options)
    handlers = {
        ADD_EACH: grpc.stream_stream_rpc_method_handler(aio_add(journal, each=True)),
        ADD_GROUPED: grpc.stream_stream_rpc_method_handler(aio_add(journal, each=False)),
        READ: grpc.unary_stream_rpc_method_handler(aio_read),
        FENCE: grpc.unary_unary_rpc_method_handler(aio_fence),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    started.send(port)
    await server.wait_for_termination()


def void(_: object) -> None:
    """Discard a result."""


def deliver(counts: Counter[Sink]) -> None:
    for sink, count in counts.items():
        sink(count)


def aio_add(journal: Journal, *, each: bool) -> Callable[[Any, Any], Coroutine[Any, Any, None]]:
    async def add(_requests: Any, context: Any) -> None:
        committed: asyncio.Queue[int] = asyncio.Queue()
        sink = committed.put_nowait
        writer = asyncio.create_task(aio_acknowledge(committed, context, each))
        try:
            while (entry := await context.read()) is not grpc.aio.EOF:
                journal.submit(entry, sink)
        finally:
            writer.cancel()

    return add


async def aio_acknowledge(committed: asyncio.Queue[int], context: Any, each: bool) -> None:
    while True:
        for count in acknowledgements(await committed.get(), each):
            await context.write(encode(count))


async def aio_read(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for _ in range(READ_MESSAGES):
        yield LARGE_ENTRY


async def aio_fence(request: bytes, _context: Any) -> bytes:
    return request


# --- the synchronous server -------------------------------------------------------------------


def serve_sync(spec: ServerSpec, started: Connection) -> None:
    journal = Journal(spec, deliver)
    pool = futures.ThreadPoolExecutor(max_workers=spec.workers)
    server = grpc.server(pool, options=spec.options)
    handlers = {
        ADD_EACH: grpc.stream_stream_rpc_method_handler(sync_add(journal, each=True)),
        ADD_GROUPED: grpc.stream_stream_rpc_method_handler(sync_add(journal, each=False)),
        READ: grpc.unary_stream_rpc_method_handler(sync_read),
        FENCE: grpc.unary_unary_rpc_method_handler(lambda request, _context: request),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    started.send(port)
    server.wait_for_termination()


def sync_add(journal: Journal, *, each: bool) -> Callable[[Any, Any], Iterator[bytes]]:
    def add(requests: Any, _context: Any) -> Iterator[bytes]:
        committed: queue.SimpleQueue[int] = queue.SimpleQueue()
        arguments = (requests, journal, committed)
        threading.Thread(target=sync_receive, args=arguments, daemon=True).start()
        while count := committed.get():
            yield from map(encode, acknowledgements(count, each))

    return add


def sync_receive(requests: Any, journal: Journal, committed: queue.SimpleQueue[int]) -> None:
    sink = committed.put
    with contextlib.suppress(Exception):
        for entry in requests:
            journal.submit(entry, sink)
    committed.put(0)


def sync_read(_request: bytes, _context: Any) -> Iterator[bytes]:
    for _ in range(READ_MESSAGES):
        yield LARGE_ENTRY


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    process: SpawnProcess
    port: int

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


@contextlib.contextmanager
def running(spec: ServerSpec) -> Iterator[Server]:
    here, there = SPAWN.Pipe()
    target = serve_aio if spec.kind == "aio" else serve_sync
    process = SPAWN.Process(target=target, args=(spec, there), daemon=True)
    process.start()
    try:
        yield Server(process, here.recv())
    finally:
        process.kill()
        process.join()


# --- clients ----------------------------------------------------------------------------------


class Client(Protocol):
    """What is asked of either client, always by a plain thread that waits for the answer."""

    def pipeline(self, load: Pipeline) -> None: ...

    def round_trips(self, count: int, seconds: float) -> list[float]: ...

    def read(self) -> None: ...

    def close(self) -> None: ...


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


@functools.cache
def background_loop() -> asyncio.AbstractEventLoop:
    """One for the process and never closed, because all loops share the poller of grpc.aio.

    An event for a loop that was closed raises in whichever loop the poller woke.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="grpc.aio", daemon=True).start()
    return loop


class AioClient:
    """An event loop in a background thread does the I/O."""

    def __init__(self, port: int, options: Options = UNLIMITED) -> None:
        self._loop = background_loop()
        self._channel = self._run(self._open(port, options))

    async def _open(self, port: int, options: Options) -> Any:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _add_stream(self, name: str) -> Any:
        return self._channel.stream_stream(method(name))()

    def pipeline(self, load: Pipeline) -> None:
        self._run(self._pipeline(load))

    async def _pipeline(self, load: Pipeline) -> None:
        call = self._add_stream(load.method)
        window = asyncio.Semaphore(load.window)
        sender = asyncio.create_task(self._send(call, load, window))
        remaining = load.count
        while remaining:
            acknowledged = decode(await call.read())
            remaining -= acknowledged
            for _ in range(acknowledged):
                window.release()
        await sender
        await call.done_writing()
        await call.code()

    async def _send(self, call: Any, load: Pipeline, window: asyncio.Semaphore) -> None:
        for _ in range(load.count):
            await window.acquire()
            await call.write(load.entry)

    def round_trips(self, count: int, seconds: float) -> list[float]:
        call = self._run(self._open_add())
        try:
            return timed_repeatedly(lambda: self._run(self._round_trip(call)), count, seconds)
        finally:
            self._loop.call_soon_threadsafe(call.cancel)

    async def _open_add(self) -> Any:
        return self._add_stream(ADD_EACH)

    async def _round_trip(self, call: Any) -> None:
        await call.write(SMALL_ENTRY)
        await call.read()

    def read(self) -> None:
        self._run(self._read())

    async def _read(self) -> None:
        async for _ in self._channel.unary_stream(method(READ))(b""):
            pass

    def hold_idle_streams(self, count: int) -> list[Any]:
        """Open add streams that send nothing more; they stay open while the result is kept."""
        return self._run(self._hold_idle_streams(count))

    async def _hold_idle_streams(self, count: int) -> list[Any]:
        calls = [self._add_stream(ADD_EACH) for _ in range(count)]
        await asyncio.gather(*(call.write(b"") for call in calls))
        return calls

    def cancel(self, calls: list[Any]) -> None:
        self._run(self._cancel(calls))

    async def _cancel(self, calls: list[Any]) -> None:
        for call in calls:
            call.cancel()
        await asyncio.gather(*(call.code() for call in calls))

    def close(self) -> None:
        self._run(self._channel.close())


class SyncClient:
    """The synchronous API, with a request iterator that waits for what there is to send."""

    def __init__(self, port: int, options: Options = UNLIMITED) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)

    def pipeline(self, load: Pipeline) -> None:
        window = threading.Semaphore(load.window)
        finished = threading.Event()
        requests = self._requests(load, window, finished)
        call = self._channel.stream_stream(method(load.method))(requests)
        remaining = load.count
        while remaining:
            acknowledged = decode(next(call))
            remaining -= acknowledged
            window.release(acknowledged)
        finished.set()
        call.code()

    @staticmethod
    def _requests(load: Pipeline, window: threading.Semaphore, finished: threading.Event) -> Iterator[bytes]:
        for _ in range(load.count):
            window.acquire()
            yield load.entry
        finished.wait()

    def round_trips(self, count: int, seconds: float) -> list[float]:
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = self._channel.stream_stream(method(ADD_EACH))(iter(outgoing.get, None))

        def round_trip() -> None:
            outgoing.put(SMALL_ENTRY)
            next(call)

        try:
            return timed_repeatedly(round_trip, count, seconds)
        finally:
            outgoing.put(None)

    def read(self) -> None:
        for _ in self._channel.unary_stream(method(READ))(b""):
            pass

    def fence(self, timeout: float) -> str:
        grpc.channel_ready_future(self._channel).result(timeout)
        began = time.perf_counter()
        try:
            self._channel.unary_unary(method(FENCE))(b"", timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name} after {time.perf_counter() - began:.1f} s"
        return f"answered in {(time.perf_counter() - began) * 1e3:.1f} ms"

    def close(self) -> None:
        self._channel.close()


CLIENTS: dict[str, Callable[[int], Client]] = {"aio": AioClient, "sync": SyncClient}


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def timed_repeatedly(action: Callable[[], object], count: int, seconds: float) -> list[float]:
    """The time of each of up to `count` calls, fewer once `seconds` are over."""
    action()
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < count and time.perf_counter() < end:
        times.append(timed(action))
    return times


def read_until_told(port: int, readers: int, control: Connection) -> None:
    """In a process of its own: `readers` reads at a time; ends by sending its MB/s."""
    asyncio.run(_read_until_told(port, readers, control))


async def _read_until_told(port: int, readers: int, control: Connection) -> None:
    received = 0

    async def read_forever(channel: Any) -> None:
        nonlocal received
        while True:
            async for message in channel.unary_stream(method(READ))(b""):
                received += len(message)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        tasks = [asyncio.create_task(read_forever(channel)) for _ in range(readers)]
        while not received:
            await asyncio.sleep(0.01)
        before, began = received, time.perf_counter()
        control.send(None)
        await asyncio.get_running_loop().run_in_executor(None, control.recv)
        control.send((received - before) / 1e6 / (time.perf_counter() - began))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def round_trips_beside_reads(server: Server, client: Client, scale: Scale) -> tuple[list[float], float]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=read_until_told, args=(server.port, scale.readers, there), daemon=True)
    process.start()
    try:
        here.recv()
        times = client.round_trips(scale.round_trips, scale.busy_seconds)
        here.send(None)
        rate: float = here.recv()
    finally:
        process.kill()
        process.join()
    return times, rate


# --- what is measured -------------------------------------------------------------------------

Figures = dict[tuple[str, str], list[float]]


def pipelines(scale: Scale) -> list[Pipeline]:
    return [
        Pipeline("1 MiB adds, an ack each", ADD_EACH, LARGE_ENTRY, scale.large, 12),
        Pipeline("400 B adds, an ack each", ADD_EACH, SMALL_ENTRY, scale.small, 1000),
        Pipeline("400 B adds, an ack a commit", ADD_GROUPED, SMALL_ENTRY, scale.small, 1000),
    ]


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def measure_pipeline(figures: Figures, setup: str, server: Server, client: Client, load: Pipeline) -> None:
    cpu = server.cpu_seconds()
    seconds = timed(lambda: client.pipeline(load))
    cpu = server.cpu_seconds() - cpu
    if len(load.entry) == len(LARGE_ENTRY):
        rate, unit = load.count * len(load.entry) / 1e6 / seconds, "MB/s"
    else:
        rate, unit = load.count / seconds, "1/s"
    figures[f"{load.name} [{unit}]", setup].append(rate)
    figures[f"{load.name} [server CPU us]", setup].append(cpu / load.count * 1e6)


def measure_round_trips(figures: Figures, setup: str, server: Server, client: Client, scale: Scale) -> None:
    idle = client.round_trips(scale.round_trips, scale.busy_seconds)
    busy, rate = round_trips_beside_reads(server, client, scale)
    for name, times in (("idle", idle), ("beside reads", busy)):
        figures[f"round trip {name}, median [ms]", setup].append(statistics.median(times) * 1e3)
        figures[f"round trip {name}, p99 [ms]", setup].append(percentile(times, 99) * 1e3)
    figures["the reads beside [MB/s]", setup].append(rate)


def compare_servers(directory: str, scale: Scale, sync: bool) -> None:
    figures: Figures = defaultdict(list)
    with contextlib.ExitStack() as stack:
        servers = {kind: stack.enter_context(running(ServerSpec(kind, directory, sync))) for kind in ("aio", "sync")}
        for _ in range(scale.runs):
            for kind, server in servers.items():
                for client_kind, new_client in CLIENTS.items():
                    setup = f"{kind}<-{client_kind}"
                    with contextlib.closing(new_client(server.port)) as client:
                        for load in pipelines(scale):
                            measure_pipeline(figures, setup, server, client, load)
                        measure_round_trips(figures, setup, server, client, scale)
    print_figures("server<-client", figures)


def print_figures(title: str, figures: Figures) -> None:
    """The median of each figure, and in brackets its ratio to the first setup's."""
    setups = list(dict.fromkeys(setup for _, setup in figures))
    print(f"\n{title:44}" + "".join(f"{setup:>20}" for setup in setups))
    for name in dict.fromkeys(name for name, _ in figures):
        medians = [statistics.median(figures[name, setup]) for setup in setups]
        first = medians[0] or float("nan")
        print(f"{name:44}" + "".join(f"{m:12,.2f} ({m / first:4.2f}x)" for m in medians))


def compare_idle_streams(directory: str, scale: Scale) -> None:
    print(f"\n{scale.idle_streams} idle add streams, then a fence by another client")
    base = ServerSpec("aio", directory)
    for spec in (
        base,
        replace(base, kind="sync"),
        replace(base, kind="sync", workers=2 * scale.idle_streams),
    ):
        name = spec.kind if spec.kind == "aio" else f"{spec.kind}, {spec.workers} workers"
        with running(spec) as server, contextlib.closing(AioClient(server.port)) as client:
            before = server.threads()
            calls = client.hold_idle_streams(scale.idle_streams)
            time.sleep(SETTLE_SECONDS)
            with contextlib.closing(SyncClient(server.port)) as other:
                fence = other.fence(scale.fence_seconds)
            print(f"{name:20} {before:4} -> {server.threads():4} threads, fence {fence}")
            client.cancel(calls)


def option_sets() -> dict[str, Options]:
    return {
        "none": (),
        "unlimited messages": UNLIMITED,
        "lookahead 8 MiB": (("grpc.http2.lookahead_bytes", 8 * MIB),),
        "lookahead, no bdp": (("grpc.http2.lookahead_bytes", 8 * MIB), ("grpc.http2.bdp_probe", 0)),
        "frames of 1 MiB": (("grpc.http2.max_frame_size", MIB),),
        "write buffer 1 MiB": (("grpc.http2.write_buffer_size", MIB),),
        "1000 streams": (("grpc.max_concurrent_streams", 1000),),
        "throughput target": (("grpc.optimization_target", "throughput"),),
        "one thread a read": ((grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),),
    }


def compare_options(directory: str, scale: Scale) -> None:
    figures: Figures = defaultdict(list)
    base = ServerSpec("aio", directory, sync=False)
    with contextlib.ExitStack() as stack:
        servers = {
            name: (options, stack.enter_context(running(replace(base, options=options))))
            for name, options in list(option_sets().items())[: scale.option_sets]
        }
        for _ in range(scale.runs):
            for name, (options, server) in servers.items():
                measure_options(figures, name, server, options, scale)
    print_options(figures)


def measure_options(figures: Figures, name: str, server: Server, options: Options, scale: Scale) -> None:
    large, small, _ = pipelines(scale)
    read_bytes = READ_MESSAGES * len(LARGE_ENTRY)
    for kind, new_client in (("aio", AioClient), ("sync", SyncClient)):
        with contextlib.closing(new_client(server.port, options)) as client:
            client.round_trips(1, 1.0)
            rates = {
                f"{kind} 1 MiB MB/s": large.count * MIB / 1e6 / timed(lambda: client.pipeline(large)),
                f"{kind} 400 B 1/s": small.count / timed(lambda: client.pipeline(small)),
                f"{kind} read MB/s": read_bytes / 1e6 / timed(client.read),
            }
        for figure, rate in rates.items():
            figures[figure, name].append(rate)


def print_options(figures: Figures) -> None:
    names = list(dict.fromkeys(name for name, _ in figures))
    print(f"\n{'aio server, no fdatasync; options':34}" + "".join(f"{name:>24}" for name in names))
    first = next(iter(option_sets()))
    for setup in dict.fromkeys(setup for _, setup in figures):
        medians = [(statistics.median(figures[n, setup]), figures[n, first]) for n in names]
        cells = (f"{m:16,.0f} ({m / statistics.median(f):4.2f}x)" for m, f in medians)
        print(f"{setup:34}" + "".join(cells))


def print_environment(directory: str) -> None:
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"python {platform.python_version()}, grpcio {grpc.__version__}, {platform.platform()}")
    print(f"{os.cpu_count()} cores, load {load}, journal in {directory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="little of everything, in seconds")
    parser.add_argument("--no-sync", action="store_true", help="leave out the fdatasync")
    parser.add_argument("--only", choices=("servers", "idle", "options"), help="one part only")
    arguments = parser.parse_args()
    scale = SMALL if arguments.small else FULL
    with tempfile.TemporaryDirectory() as directory:
        print_environment(directory)
        if arguments.only in (None, "servers"):
            compare_servers(directory, scale, sync=not arguments.no_sync)
        if arguments.only in (None, "idle"):
            compare_idle_streams(directory, scale)
        if arguments.only in (None, "options"):
            compare_options(directory, scale)


if __name__ == "__main__":
    main()
