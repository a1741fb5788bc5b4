"""The users who may take a bookie's port for Apache's clients, from a file: a line ``user:password`` for each.

Empty lines, and those that begin with ``#``, say nothing. A name has no colon, a password may. The file is read again when it
changes, without a restart: connections that begin afterwards use the new content, open ones go on. While it cannot be used the
former content stays in use, and the log says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from bk_spark.errors import ConfigError, State
from bk_spark.tls.files import LOOK_S, stamp, warn_of_open_file

MAX_FILE_BYTES = 1024 * 1024
"""The largest size of the file: some ten thousand users."""

SETTING = "apache_users (--apache-users)"

logger = logging.getLogger(__name__)


class ApacheUsers:
    """The last good content of the file. Lives on the event loop."""

    def __init__(self, path: str, clock_s: Callable[[], float]) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._path = Path(path)
        self._clock_s = clock_s
        self._looked_s = clock_s()
        self._seen = stamp(self._path)
        self._passwords = read(self._path)
        warn_of_open_file(path)

    def password_of(self, user: str) -> str | None:
        """None if there is no such user. The file is looked at once a second at most."""
        if self._clock_s() - self._looked_s >= LOOK_S:
            self._look()
        return self._passwords.get(user)

    def _look(self) -> None:
        self._looked_s = self._clock_s()
        found = stamp(self._path)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._passwords = read(self._path)
        except ConfigError as problem:
            logger.warning("the file of users changed and cannot be used, the former content stays in use: %s", problem)
        else:
            logger.info("the file of users changed: new connections use it (%s)", self._path)


def read(path: Path) -> dict[str, str]:
    """The password of each user. Raises ConfigError, without the content of a line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no path"
        raise ConfigError(SETTING, str(path), f"it cannot be read ({why}): name a file of lines user:password") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(SETTING, str(path), f"it has more than {MAX_FILE_BYTES} bytes: name a file of lines user:password")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        raise ConfigError(SETTING, str(path), "it is no text in UTF-8: name a file of lines user:password") from None
    return _users(str(path), lines)


def _users(path: str, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        user, colon, password = line.removesuffix("\r").partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not (user and colon and password):
            raise ConfigError(f"line {number} of {path}", State("(not shown)"), "it must be user:password")
        if user in found:
            raise ConfigError(f"line {number} of {path}", State("(not shown)"), "an earlier line has the same user: keep one")
        found[user] = password
    if not found:
        raise ConfigError(SETTING, path, "it names no user: write a line user:password for each")
    return found
