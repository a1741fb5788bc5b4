"""Standard streams that a command cannot use as it would like: closed, full, without a reader, of a narrow encoding."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest

from bk_spark import cli
from bk_spark.commands.output import print_line, print_record, print_records, printable, say
from bk_spark.commands.program.process import open_streams


def test_closed_streams_are_those_of_nothing(running, monkeypatch) -> None:
    def handler(_):
        assert sys.stdin.read() == ""
        print_record({"a": 1}, as_json=True)
        say("said")

    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert running(handler) == 0


def test_a_closed_stream_keeps_its_number_from_the_files_that_a_command_opens(monkeypatch) -> None:
    kept = os.dup(0)
    try:
        os.close(0)
        monkeypatch.setattr(sys, "stdin", None)
        open_streams()
        with open(os.devnull) as opened:
            assert opened.fileno() != 0
        assert os.path.samestat(os.fstat(0), os.stat(os.devnull))
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_what_the_encoding_of_stdout_cannot_write_is_escaped_and_the_list_goes_on(running, monkeypatch, encoding) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding))
    names = ["a", "größe", "日本", "x\udcff", "z"]
    assert running(lambda _: print_records([{"log": name} for name in names], ["log"], as_json=False)) == 0
    lines = out.getvalue().decode(encoding).splitlines()
    assert [lines[1], lines[-1], len(lines)] == ["a", "z", 6]
    assert lines[2] == ("gr\\xf6\\xdfe" if encoding == "ascii" else "größe")


@pytest.mark.parametrize(("number", "code"), [(errno.EPIPE, 141), (errno.ENOSPC, 1), (errno.EBADF, 1), (errno.EAGAIN, 1)])
@pytest.mark.parametrize("at", ["write", "flush"])
def test_output_that_cannot_be_written_is_told_once_unless_its_reader_has_ended(
    running, monkeypatch, capsys, number, code, at
) -> None:
    class Failing(io.StringIO):
        def _fail(self, *_):
            raise OSError(number, os.strerror(number))

    setattr(Failing, at, Failing._fail)
    monkeypatch.setattr(sys, "stdout", Failing())
    assert running(lambda _: print_line("x")) == code
    told = capsys.readouterr().err
    assert told == "" if code == 141 else told.count("\n") == 1
    assert code == 141 or f"cannot be written: {os.strerror(number)} (if it was to change something, it has)" in told


def test_help_that_cannot_be_written_is_a_failure_too(monkeypatch, capsys) -> None:
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for words in (["--help"], ["--version"], ["log", "read", "--help"]):
        monkeypatch.setattr(sys, "stdout", Full())
        assert cli.main(words) == 1
        assert "No space left on device" in capsys.readouterr().err


def test_a_message_that_nobody_can_read_ends_nothing(running, monkeypatch) -> None:
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    done = []
    assert running(lambda _: (say("what comes"), done.append(True))) == 0
    assert done == [True]


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("a ü 日本\u3000é") == "a ü 日本\u3000é"
    assert printable("\x1b[31m\u202ex\n\x00\udcff") == r"\x1b[31m\u202ex\n\x00\udcff"
