"""Java programs of the tests, compiled once for many starts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def compile_java(sources: Path, class_path: str, classes: Path) -> None:
    """Compile all sources below a directory. Raises RuntimeError if that fails, or a JDK is missing."""
    javac = shutil.which("javac")
    if javac is None:
        raise RuntimeError(f"javac is needed to compile {sources}: install a JDK 17")
    command = [javac, "-nowarn", "-d", str(classes), "-cp", class_path, *sorted(map(str, sources.rglob("*.java")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{sources} does not compile: {done.stderr}")
