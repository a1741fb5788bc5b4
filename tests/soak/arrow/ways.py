"""The real ways into a log and out of it: the Python client, coroutines, commands with files, and Spark."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import parquet

import bk_spark.aio as bk
from bk_spark import cli
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError

_Result = TypeVar("_Result")
_DEADLINE_S = 120.0


class CommandRefused(BookKeeperError):
    """What a command said that ended with 1, or Spark of an error of ours."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        return self.text


class Ways:
    """Clients of one cluster, a folder for files, and a session of Spark where one is given."""

    def __init__(self, uri: str, folder: Path, spark: Any = None) -> None:
        self.uri = uri
        self.folder = folder
        self._parser = cli.build_parser()
        """Made once: it takes longer than most commands."""
        self.spark = spark
        self.client = BookKeeper(uri, ClientConfig(explicit_lac_s=0.02))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.aio: bk.AsyncBookKeeper = self.awaited(bk.connect(uri))

    def awaited(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_DEADLINE_S)

    def close(self) -> None:
        self.awaited(self.aio.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.client.close()

    def command(self, *words: str) -> None:
        """One command, in this process. Raises CommandRefused."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = cli._run(self._parser.parse_args([*words, "--metadata", self.uri]))
        if code:
            raise CommandRefused(errors.getvalue())

    def file(self, form: str) -> Path:
        return self.folder / f"rows.{form}"

    def frame(self, log: str) -> pa.Table:
        """The log as Spark reads it."""
        reader = self.spark.read.format("bookkeeper").option("metadata", self.uri)
        found: pa.Table = reader.load(log).toArrow()
        return found

    def frame_of(self, rows: pa.Table) -> Any:
        """A data frame of Spark; None where Spark cannot make one."""
        try:
            return self.spark.createDataFrame(rows)
        except pa.ArrowNotImplementedError:
            return None

    def write_frame(self, log: str, frame: Any, *, merge: bool) -> None:
        writer = frame.write.format("bookkeeper").option("metadata", self.uri).option("mergeSchema", str(merge).lower())
        try:
            writer.mode("append").save(log)
        except Exception as problem:
            if "bk_spark.errors." not in str(problem):
                raise
            raise CommandRefused(str(problem)) from None


def written(rows: pa.Table, form: str, path: Path) -> bool:
    """Whether the file has the rows as they are: neither Arrow's files nor Parquet have every form of Arrow."""
    try:
        if form == "parquet":
            rows.validate(full=True)  # of other values it would write a part
            parquet.write_table(rows, path)
            return bool(parquet.read_schema(path).equals(rows.schema))
        is_stream = form == "arrows"
        with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(path, rows.schema) as writer:
            writer.write_table(rows)
        source = pa.BufferReader(path.read_bytes())
        # Of an extension type in a dictionary, and of some empty columns, Arrow writes what it does not read.
        found = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(source).read_all()
        return bool(found.schema.equals(rows.schema)) and (not is_stream or source.tell() == source.size())
    except (pa.ArrowException, NotImplementedError, OSError):
        return False


def read_file(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return parquet.ParquetFile(path).read()
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()
