"""``bk-spark log read`` and ``log append``: how much is printed, and what refusals call the options."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.cli import main
from bk_spark.commands import log_rows
from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.schema import MERGE_ARGUMENT
from bk_spark.log.stored.values import Content

ROWS = 250


class Output(io.TextIOWrapper):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__(io.BytesIO())
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def lines(self) -> int:
        self.flush()
        return self.buffer.getvalue().count(b"\n")  # type: ignore[attr-defined]


class Rows:
    """A log of rows, or of entries."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def snapshot(self) -> Any:
        return SimpleNamespace(content=self._content)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"ledger_id": [1] * ROWS, "entry_id": list(range(ROWS)), "payload": [b"x"] * ROWS})

    def read_rows(self, *_: object, **__: object) -> pa.RecordBatchReader:
        batch = pa.record_batch({"n": list(range(ROWS))})
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def _with(client: object, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connected(_: object) -> Iterator[object]:
        yield client

    monkeypatch.setattr(log_rows, "bookkeeper", connected)


@pytest.mark.parametrize("content", Content)
@pytest.mark.parametrize(
    ("is_terminal", "options", "lines"),
    [
        (False, [], ROWS),
        (False, ["--json"], ROWS),
        (False, ["--format", "json"], ROWS),
        (False, ["--limit", "7"], 7),
        (True, [], log_rows.SHOWN),
        (True, ["--json"], log_rows.SHOWN),
        (True, ["--limit", "7"], 7),
        (False, ["--format", "table"], log_rows.SHOWN + 1),
    ],
)
def test_all_is_printed_unless_a_person_reads_it(
    content: Content, is_terminal: bool, options: list[str], lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(SimpleNamespace(open_log=lambda *_, **__: Rows(content)), monkeypatch)
    out = Output(is_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["log", "read", "orders", "--metadata", "zk://h:1/l", *options]) == 0
    assert out.lines == lines


@pytest.mark.parametrize(
    ("content", "options", "code", "says"),
    [
        (
            Content.ROWS,
            ["--deleted-by", "gone"],
            2,
            "--deleted-by only works with --view latest: give that, too",
        ),
        (Content.ENTRIES, ["--view", "latest"], 1, "it holds entries: --columns, --where and --view are for rows"),
        (Content.ROWS, ["--view", "newest"], 2, "invalid choice: 'newest'"),
    ],
)
def test_a_view_that_a_log_does_not_have_is_refused(
    content: Content,
    options: list[str],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _with(SimpleNamespace(open_log=lambda *_, **__: Rows(content)), monkeypatch)
    try:
        found = main(["log", "read", "orders", "--metadata", "zk://h:1/l", *options])
    except SystemExit as ended:
        found = ended.code
    assert found == code
    assert says in capsys.readouterr().err


def test_a_refusal_of_the_rows_names_the_commands_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise SchemaMismatchError("orders", f"drop it, or add it with {MERGE_ARGUMENT}")

    names = SimpleNamespace(find_usable=lambda _: None)
    _with(SimpleNamespace(append_rows=refused, logs=SimpleNamespace(names=names)), monkeypatch)
    (tmp_path / "rows.csv").write_text("n\n1\n")
    assert main(["log", "append", "orders", str(tmp_path / "rows.csv"), "--create", "--metadata", "zk://h:1/l"]) == 1
    told = capsys.readouterr().err
    assert "drop it, or add it with --merge-schema" in told
    assert "True" not in told


def test_a_condition_is_read_as_utf_8_whatever_the_locale() -> None:
    assert log_rows._condition("name = '\udcc3\udcbc'") == "name = 'ü'"
