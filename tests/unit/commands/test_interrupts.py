"""Ctrl-C while a command starts: no traceback, whatever is imported just then."""

from __future__ import annotations

import signal

import pytest

from bk_spark import cli


def test_while_commands_are_imported_an_interrupt_ends_the_process_and_later_it_is_the_command_s(monkeypatch) -> None:
    seen = []
    known = cli.build_parser

    def build():
        seen.append(signal.getsignal(signal.SIGINT))
        return known()

    monkeypatch.setattr(cli, "build_parser", build)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # that of a program in the foreground
    try:
        with pytest.raises(SystemExit):
            cli.main(["--version"])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_DFL]


def test_an_interrupt_that_is_ignored_stays_ignored(monkeypatch) -> None:
    """As in a job that a shell started in the background."""
    seen = []
    known = cli.build_parser
    monkeypatch.setattr(cli, "build_parser", lambda: seen.append(signal.getsignal(signal.SIGINT)) or known())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            cli.main(["--version"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN]


def test_an_interrupt_while_arguments_are_read_is_no_traceback(monkeypatch) -> None:
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert cli.main([]) == 1
