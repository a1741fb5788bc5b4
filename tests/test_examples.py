"""What the README shows and what stands in examples/ runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEADLINE_S = 110


def _run(code: list[str], cwd: Path) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_readmes_first_example_runs_and_is_about_ten_lines_long(tmp_path: Path) -> None:
    [first, *_] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(first.strip().splitlines()) <= 12
    shown = _run(["-c", first], tmp_path)
    assert "apples" in shown
    assert "pears" in shown


def test_the_demo_finds_everything_equal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "Equal." in _run([str(ROOT / "examples" / "demo.py")], tmp_path)
    assert list(tmp_path.iterdir()) == []
