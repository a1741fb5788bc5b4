"""Gives the archives from which Spark's Python processes import pyspark its byte code. They come without, so each process
compiles what it imports, for most of a second of CPU, and tests start hundreds of them.

``python -m tests.spark.byte_code STAMP`` changes the pyspark of this environment, and then touches STAMP. What the processes
run is as before.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

ARCHIVES = Path(pyspark.__file__).parent / "python" / "lib"


def add_byte_code(archive: Path) -> None:
    """Beside each module that is no test of its own. What stands at ``archive`` is whole at every moment."""
    part = archive.with_suffix(".part")
    with zipfile.ZipFile(archive) as before, zipfile.ZipFile(part, "w") as after:
        for file in before.infolist():
            name, data = file.filename, before.read(file)
            if not name.endswith(".pyc"):
                after.writestr(file, data)
            if name.endswith(".py") and "/tests/" not in name:
                after.writestr(f"{name}c", _compiled(data, archive / name))
    part.rename(archive)


def _compiled(source: bytes, shown: Path) -> bytes:
    """Tracebacks name the file that is ``shown``. Nobody compares source and byte code again: they lie in one archive."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "module.py")
        file.write_bytes(source)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(file), f"{file}c", str(shown), doraise=True, invalidation_mode=mode)
        return Path(f"{file}c").read_bytes()


if __name__ == "__main__":
    for each in ARCHIVES.glob("*.zip"):
        add_byte_code(each)
    Path(sys.argv[1]).touch()
