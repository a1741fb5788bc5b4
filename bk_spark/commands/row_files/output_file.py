"""Where rows are written to: standard output, or a file whose name tells its format."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from bk_spark.commands.output import flush_output, say, writing_output
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.row_files.named_file import NAME_REMEDY, TEXT_FORMATS, form_of_name
from bk_spark.errors import ConfigError

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_DESCRIPTOR = re.compile(r"/dev/stderr|/(?:dev|proc/self)/fd/([0-9]+)")


@dataclass(frozen=True, slots=True)
class OutputFile:
    path: str | None
    """None: standard output."""
    form: str | None
    """None: standard output, and nobody said."""
    compression: str | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The file, which takes the place of what was there once it is whole. Raises ConfigError, and OutputError of stdout."""
        if self.path is None:
            with writing_output():
                flush_output()
                yield sys.stdout.buffer
                sys.stdout.buffer.flush()
            return
        try:
            with _written(Path(self.path)) as file:
                if self.compression is None:
                    yield file
                else:
                    with pa.CompressedOutputStream(file, self.compression) as packed:
                        yield packed
        except OSError as problem:
            raise ConfigError("--output", self.path, f"it cannot be written: {problem.strerror or problem}") from None


def output_file(path: str | None, form: str | None) -> OutputFile:
    """What ``--output`` and ``--format`` mean together; ``--format`` wins. Raises UsageError where neither says."""
    if path is None or path in STDOUT:
        if form in ("parquet", "arrow") and sys.stdout.isatty():
            raise UsageError(f"--format {form} is not for a terminal: give --output FILE, or redirect")
        return OutputFile(None, form)
    named, compression = form_of_name(path)
    if form is not None and named is not None and form != named:
        say(f"the file is written as {form}, as --format says, though its name says {named}: {path}")
    found = form or named
    if found is None or (compression is not None and found not in TEXT_FORMATS):
        raise UsageError(f"--output {path!r} does not say what to write: {NAME_REMEDY}")
    return OutputFile(path, found, compression)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """What is no file, such as a pipe, or stands for an open one, such as ``/dev/fd/3``, is written to; a file is replaced."""
    descriptor = _DESCRIPTOR.fullmatch(str(path))
    if descriptor is not None:
        with os.fdopen(os.dup(int(descriptor[1] or 2)), "wb") as opened:
            yield opened
    elif path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
    else:
        with _replaced(path.resolve()) as file:
            yield file


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` once it is whole: what is cut off on the way is never taken for all rows."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        if path.exists():
            unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
