"""One file of rows: its format and compression, by its name, and whether it is still the same when it is read again."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.row_files.first_bytes import START_BYTES, seems
from bk_spark.errors import ConfigError

STDIN = "-"
FORMATS = ("arrow", "csv", "json", "parquet", "tsv")
TEXT_FORMATS = ("csv", "json", "tsv")
_ARROW_FILE = b"A"
"""With which the magic of an Arrow file begins, and no stream."""
_COPIED_BYTES = 1 << 20
SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Of texts: Parquet and Arrow compress inside."""
NAME_REMEDY = (
    f"its name must end in one of {', '.join(SUFFIXES)}, and of texts with {', '.join(COMPRESSIONS)} behind it; "
    "or give --format"
)


def one_line(problem: Exception) -> str:
    """What another library says, for a sentence of ours."""
    return " ".join(str(problem).split())[:500]


@dataclass(frozen=True, slots=True)
class NamedFile:
    path: str
    form: str
    compression: str | None
    stamp: tuple[int, ...]
    """The file and the moment of its last change, as they were at first; empty for standard input."""
    kept: BinaryIO | None = None
    """What came on standard input, in a file that nobody else sees; None for an Arrow stream, which is read as it comes."""

    @property
    def is_text(self) -> bool:
        return self.form in TEXT_FORMATS

    @property
    def is_stream(self) -> bool:
        return self.path == STDIN and self.kept is None

    def open(self) -> Any:
        """The file's bytes, decompressed. Raises ConfigError where they are no longer those that were looked at first."""
        if self.kept is not None:
            again = os.fdopen(os.dup(self.kept.fileno()), "rb")
            again.seek(0)
            return again
        if self.is_stream:
            return sys.stdin.buffer
        self.check()
        try:
            file: BinaryIO = Path(self.path).open("rb")  # noqa: SIM115  (the caller closes it)
        except OSError as problem:
            raise ConfigError("FILE", self.path, f"it cannot be read: {problem.strerror}") from None
        return file if self.compression is None else pa.CompressedInputStream(file, self.compression)

    def check(self) -> None:
        """Raise ConfigError if the file changed since it was named."""
        if self.stamp and _stamp(self.path) != self.stamp:
            raise ConfigError("FILE", self.path, "it changed while it was read: append it again once nobody writes to it")

    def unreadable(self, problem: Exception) -> ConfigError:
        hint = None if self.is_stream else seems(self._start())
        told = f"{one_line(problem)}; {hint}" if hint else one_line(problem)
        return ConfigError("FILE", self.path, f"it cannot be read as {self.form}: {told}")

    def _start(self) -> bytes:
        """The first bytes, decompressed; none where they cannot be read."""
        try:
            with closing(self.open()) as opened:
                return bytes(opened.read(START_BYTES))
        except (ConfigError, OSError):
            return b""


def named_files(paths: list[str], form: str | None) -> list[NamedFile]:
    """Raises UsageError for a name without a known end, unless ``form`` is given, and ConfigError for what is not a file."""
    if paths.count(STDIN) > 1:
        raise UsageError("FILE - is given twice: standard input can be read once")
    return [_named(path, form) for path in paths]


def _named(path: str, form: str | None) -> NamedFile:
    if path == STDIN:
        return _standard_input(form or "arrow")
    named, compression = form_of_name(path)
    found = form or named
    if found is None or (compression is not None and found not in TEXT_FORMATS):
        raise UsageError(f"FILE {path!r} does not say what it holds: {NAME_REMEDY}")
    return NamedFile(path, found, compression, _stamp(path))


def _standard_input(form: str) -> NamedFile:
    """An Arrow stream is read as it comes. All else needs a second look, or its end first, so it is kept in a file."""
    if sys.stdin is None:
        raise ConfigError("FILE", STDIN, "standard input is closed: pipe rows into it")
    if sys.stdin.isatty():
        raise ConfigError("FILE", STDIN, "standard input is a terminal: pipe rows into it")
    start = cast("BufferedReader", sys.stdin.buffer).peek(1)[:1]
    if not start:
        raise ConfigError("FILE", STDIN, "nothing came on standard input: look at the program that was to write to it")
    if form == "arrow" and start != _ARROW_FILE:
        return NamedFile(STDIN, form, None, ())
    try:
        kept = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the command)
        shutil.copyfileobj(sys.stdin.buffer, kept, _COPIED_BYTES)
        kept.flush()
    except OSError as problem:
        remedy = "give it as a file, or name a folder with room by TMPDIR"
        raise ConfigError("FILE", STDIN, f"it cannot be kept until it is read: {problem.strerror}: {remedy}") from None
    return NamedFile(STDIN, form, None, (), kept)


def form_of_name(path: str) -> tuple[str | None, str | None]:
    """The format and the compression that a file's name tells, such as ``x.csv.gz``; None for each that it does not tell."""
    end = Path(path).suffix.lower()
    compression = COMPRESSIONS.get(end)
    if compression is not None:
        end = Path(path).with_suffix("").suffix.lower()
    return SUFFIXES.get(end), compression


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as problem:
        missing = isinstance(problem, FileNotFoundError)
        raise ConfigError("FILE", path, "there is no such file" if missing else f"it cannot be read: {problem}") from None
    if stat.S_ISDIR(found.st_mode):
        raise ConfigError("FILE", path, "it is a directory: name the files in it")
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("FILE", path, "it is no file that can be read twice: pipe it into '-', with its --format")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
