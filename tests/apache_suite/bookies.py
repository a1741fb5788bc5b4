"""The commands that start a bookie: one of ours, or one of Apache's, which tells what the tests say of the harness itself.

The JSON file that describes the bookie is the last word of a command, and follows these.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.apache_suite.runner import SMALL_JVM, Suite

OURS = "ours"
APACHE = "apache"

ROOT = Path(__file__).resolve().parent.parent.parent

_ONE_BOOKIE = "org.apache.bookkeeper.client.TestReadLastEntry"
_ONE_TEST = "testTryReadLastEntrySync"


def our_bookie() -> list[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.apache_suite.bookie import main; main()"
    return [sys.executable, "-P", "-c", program]


def apache_bookie(java: str, class_path: str, *options: str) -> list[str]:
    memory = ["-Xmx256m", "-XX:MaxDirectMemorySize=256m"]
    return [java, *SMALL_JVM, *memory, *options, "-cp", class_path, "apachesuite.ApacheBookie"]


def with_archive(suite: Suite, directory: Path) -> Suite:
    """The suite with Apache's bookies that take their classes from an archive, which halves the work of a start.

    A test with one bookie makes the archive.
    """
    archive = directory / "bookie.jsa"
    recording = apache_bookie(suite.java, suite.class_path, f"-XX:ArchiveClassesAtExit={archive}")
    replace(suite, bookie_command=recording).run(_ONE_BOOKIE, directory / "archive", [_ONE_TEST])
    if not archive.exists():
        return suite
    using = apache_bookie(suite.java, suite.class_path, f"-XX:SharedArchiveFile={archive}")
    return replace(suite, bookie_command=using)
