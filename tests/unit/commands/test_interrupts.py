"""The signals that end a command, from its start to its exit: no traceback, and always the same exit code."""

from __future__ import annotations

import os
import signal

import pytest

from bk_spark import cli
from bk_spark.commands.program import process
from bk_spark.commands.program.process import SIGNALS, SignalledError, Signals, StopSignal
from bk_spark.errors import ConfigError


def test_while_commands_are_imported_an_interrupt_ends_the_process_and_later_it_is_the_command_s(monkeypatch) -> None:
    seen = []
    known = cli.build_parser

    def build(words):
        seen.append(signal.getsignal(signal.SIGINT))
        return known(words)

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
    monkeypatch.setattr(cli, "build_parser", lambda words: seen.append(signal.getsignal(signal.SIGINT)) or known(words))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            cli.main(["--version"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN]


def test_an_interrupt_while_arguments_are_read_is_no_traceback(monkeypatch) -> None:
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert cli.main([]) == 130


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_with_its_own_code_after_the_command_has_tidied_up(heard, running, number: int) -> None:
    tidied = []

    def handler(_):
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            os.kill(os.getpid(), number)  # as 'timeout', a terminal and a shell may each send one
            tidied.append(True)

    assert running(handler) == 128 + number
    assert tidied == [True]


@pytest.mark.parametrize("error", [ConfigError("ledger", 7, "it cannot be deleted"), SystemError("error return without one")])
def test_what_fails_because_a_signal_cut_it_off_is_no_failure_of_its_own(heard, running, capsys, error: Exception) -> None:
    """A library may put its own error in the place of the signal's."""

    def handler(_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        except KeyboardInterrupt:
            raise error from None

    assert running(handler) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == ""


def test_a_second_signal_that_comes_later_ends_the_process_at_once(monkeypatch, heard) -> None:
    ended_by = []
    monkeypatch.setattr(process, "end_by", ended_by.append)
    signals = Signals()
    try:
        signals.begin()
        with pytest.raises(SignalledError):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert ended_by == []
        monkeypatch.setattr(process, "REPEAT_S", 0.0)
        os.kill(os.getpid(), signal.SIGINT)
        assert ended_by == [signal.SIGINT]
    finally:
        signals.restore()


def test_at_its_exit_the_process_ends_by_the_signal_that_ended_its_command(monkeypatch) -> None:
    ended_by = []
    monkeypatch.setattr(process, "end_by", ended_by.append)
    signals = Signals()
    signals.restore()
    for code in (0, 1, 2, 130, 141):
        signals.exit_code = code
        signals.end_process()
    assert ended_by == [signal.SIGINT, signal.SIGPIPE]


def test_what_ends_a_server_is_interrupt_termination_and_hangup_unless_that_is_ignored(heard) -> None:
    for number in SIGNALS:
        stop = StopSignal()
        assert not stop.wait(0.01)
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as 'nohup' leaves it
    stop = StopSignal()
    os.kill(os.getpid(), signal.SIGHUP)
    assert not stop.wait(0.01)


@pytest.fixture
def heard():
    """The signals are not ignored, though the tests may run where 'nohup' or a shell's background left it so."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, known in before.items():
        signal.signal(number, known)
