"""The users who may take a bookie's port for Apache's clients, from a file: a line ``user:password`` for each.

A name has no colon, a password may. After a change (watched_file.py) connections that begin use the new content, open ones go
on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bk_spark.bookie.server.watched_file import WatchedFile, read_lines
from bk_spark.errors import ConfigError, State
from bk_spark.tls.files import warn_of_open_file

SETTING = "apache_users (--apache-users)"


class ApacheUsers:
    """Lives on the event loop."""

    def __init__(self, path: str, clock_s: Callable[[], float]) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._file = WatchedFile("users", path, clock_s, read)
        warn_of_open_file(path)

    def password_of(self, user: str) -> str | None:
        """None if there is no such user."""
        return self._file.content().get(user)


def read(path: Path) -> dict[str, str]:
    """The password of each user. Raises ConfigError, without the content of a line."""
    found: dict[str, str] = {}
    for number, line in read_lines(SETTING, path, "user:password"):
        user, colon, password = line.partition(":")
        if not (user and colon and password):
            raise ConfigError(f"line {number} of {path}", State("(not shown)"), "it must be user:password")
        if user in found:
            raise ConfigError(f"line {number} of {path}", State("(not shown)"), "an earlier line has the same user: keep one")
        found[user] = password
    if not found:
        raise ConfigError(SETTING, str(path), "it names no user: write a line user:password for each")
    return found
