"""The peers' jars, fetched with Maven from the registry that it is set up for, once, and kept in ``.jars`` beside this file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.speed.measure import SkippedError

JARS = Path(__file__).resolve().parent / ".jars"

FETCH_S = 600.0
"""A hundred megabytes over a slow line."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def jars(pom: Path) -> list[Path]:
    """What the dependencies of a Maven project need at run time.

    They are fetched again when the project's file changes. Raises SkippedError where Maven is missing, or does not get them.
    """
    name = f"{pom.stem}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    directory = JARS / name
    if not directory.is_dir():
        _fetch(pom, directory)
    return sorted(directory.glob("*.jar"))


def _fetch(pom: Path, directory: Path) -> None:
    """Into a directory that has its name only when it is complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SkippedError(f"the program mvn is needed to fetch what {pom.name} names")
    JARS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS) as temporary:
        _run([maven, "-B", "-q", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={temporary}/jars"], pom)
        try:
            Path(temporary, "jars").rename(directory)
        except OSError:
            if not directory.is_dir():  # otherwise another process was faster
                raise


def _run(command: list[str], pom: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise SkippedError(f"Maven did not fetch what {pom.name} names within {FETCH_S:g} s") from None
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), f"exit status {done.returncode}")
        raise SkippedError(f"Maven did not fetch what {pom.name} names: {reason}")
