"""A file of lines that a bookie reads again when it changes, without a restart.

Empty lines, and those that begin with ``#``, say nothing. While the file cannot be used the former content stays in use, and
the log says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from bk_spark.errors import ConfigError
from bk_spark.tls.files import LOOK_S, stamp

MAX_FILE_BYTES = 1024 * 1024
"""The largest size of such a file: some ten thousand lines."""

_Content = TypeVar("_Content")

logger = logging.getLogger(__name__)


class WatchedFile(Generic[_Content]):
    """The last good content of a file. Lives on the event loop."""

    def __init__(self, what: str, path: str, clock_s: Callable[[], float], read: Callable[[Path], _Content]) -> None:
        """``what`` is in it, such as "users". Raises ConfigError if the file cannot be used, as ``read`` does."""
        self._what = what
        self._path = Path(path)
        self._clock_s = clock_s
        self._read = read
        self._looked_s = clock_s()
        self._seen = stamp(self._path)
        self._content = read(self._path)

    def content(self) -> _Content:
        """The file is looked at once a second at most."""
        if self._clock_s() - self._looked_s >= LOOK_S:
            self._look()
        return self._content

    def _look(self) -> None:
        self._looked_s = self._clock_s()
        found = stamp(self._path)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._content = self._read(self._path)
        except ConfigError as problem:
            what = "the file of %s changed and cannot be used, the former content stays in use: %s"
            logger.warning(what, self._what, problem)
        else:
            logger.info("the file of %s changed, and is in use (%s)", self._what, self._path)


def read_lines(setting: str, path: Path, form: str) -> list[tuple[int, str]]:
    """The lines that say something, each with its number. ``form`` is what a line has to be. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no path"
        raise ConfigError(setting, str(path), f"it cannot be read ({why}): name a file of lines {form}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(setting, str(path), f"it has more than {MAX_FILE_BYTES} bytes: name a file of lines {form}")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        raise ConfigError(setting, str(path), f"it is no text in UTF-8: name a file of lines {form}") from None
    numbered = ((number, line.removesuffix("\r")) for number, line in enumerate(lines, 1))
    return [(number, line) for number, line in numbered if line.strip() and not line.startswith("#")]
