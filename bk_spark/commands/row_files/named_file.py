"""One file of rows: its format and compression, by its name, and whether it is still the same when it is read again."""

from __future__ import annotations

import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from bk_spark.errors import ConfigError

STDIN = "-"
FORMATS = ("arrow", "csv", "json", "parquet", "tsv")
TEXT_FORMATS = ("csv", "json", "tsv")
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

    @property
    def is_text(self) -> bool:
        return self.form in TEXT_FORMATS

    def open(self) -> Any:
        """The file's bytes, decompressed. Raises ConfigError where they are no longer those that were looked at first."""
        if self.path == STDIN:
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
        return ConfigError("FILE", self.path, f"it cannot be read as {self.form}: {one_line(problem)}")


def named_files(paths: list[str], form: str | None) -> list[NamedFile]:
    """Raises ConfigError for a name without a known end, unless ``form`` is given, and for what is not a file."""
    if paths.count(STDIN) > 1:
        raise ConfigError("FILE", STDIN, "standard input can be read once")
    return [_named(path, form) for path in paths]


def _named(path: str, form: str | None) -> NamedFile:
    if path == STDIN:
        if form not in (None, "arrow"):
            raise ConfigError("--format", form, "standard input ('-') takes an Arrow stream: write others to a file first")
        if sys.stdin.isatty():
            raise ConfigError("FILE", path, "standard input is a terminal: pipe an Arrow stream into it")
        return NamedFile(path, "arrow", None, ())
    named, compression = form_of_name(path)
    found = form or named
    if found is None or (compression is not None and found not in TEXT_FORMATS):
        raise ConfigError("FILE", path, NAME_REMEDY)
    return NamedFile(path, found, compression, _stamp(path))


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
        raise ConfigError("FILE", path, "it is no file that can be read twice: pipe an Arrow stream into '-'")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
