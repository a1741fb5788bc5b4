"""Which allocator Arrow takes its buffers from."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

PROGRAM = """
from bk_spark.process.memory import have_arrow_give_back
have_arrow_give_back()
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""


def _backend(chosen: str | None) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environ["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this pyarrow has no jemalloc")
def test_arrow_takes_the_allocator_that_returns_freed_memory() -> None:
    assert _backend(None) == "jemalloc"


def test_a_users_choice_of_arrows_allocator_stays() -> None:
    assert _backend("system") == "system"
