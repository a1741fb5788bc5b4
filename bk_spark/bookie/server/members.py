"""Whom a bookie takes for members of the cluster, from a file: a line for each.

::

    certificate:NAME    who shows a certificate with this common name, or, if it has none, this first other name
    user:NAME           who has shown to be this user at the port for Apache's clients (apache_users)

The names are those of the audit log's lines. Everybody else may read keyed ledgers with their keys, and ask who the bookie is.

Ref: DESIGN.md, "Who may do what"; docs/guide/secure.md, "Members at bookies".
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bk_spark.bookie.server.watched_file import WatchedFile, read_lines
from bk_spark.entries.digest import is_keyed
from bk_spark.errors import ConfigError
from bk_spark.telemetry.audit_lines import Who

SETTING = "members (--members)"

NO_MEMBER = "whoever asks is not in this bookie's file of members"
"""The text of a refusal."""

_FORM = "certificate:NAME or user:NAME"


class BookieMembers:
    """Lives on the event loop."""

    def __init__(self, path: str, clock_s: Callable[[], float]) -> None:
        """``path`` "": everybody is one whom the bookie lets in. Raises ConfigError if the file cannot be used."""
        self._file = WatchedFile("members", path, clock_s, read) if path else None

    def have(self, who: Who) -> bool:
        if self._file is None:
            return True
        names = self._file.content()
        return (bool(who.certificate) and f"certificate:{who.certificate}" in names) or (
            bool(who.user) and f"user:{who.user}" in names
        )

    def let_read(self, who: Who, master_key: bytes, *, fence: bool) -> bool:
        """Whether a read is to be looked at: a stranger's must have a key, which the bookie then compares."""
        return (is_keyed(master_key) and not fence) or self.have(who)


def read(path: Path) -> frozenset[str]:
    """The members. Raises ConfigError."""
    found = set()
    for number, line in read_lines(SETTING, path, _FORM):
        kind, _, name = line.partition(":")
        if kind not in ("certificate", "user") or not name:
            raise ConfigError(f"line {number} of {path}", line, f"it must be {_FORM}")
        found.add(line)
    if not found:
        raise ConfigError(SETTING, str(path), f"it names no member: write a line {_FORM} for each")
    return frozenset(found)
