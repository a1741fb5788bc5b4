"""Raises an exception in a thread at a chosen step of a call, as an interrupt does.

CPython runs handlers of signals at few of the steps of a function: when it begins, when a loop goes round, and after each
call. ``STEPS`` are all steps of the shipped code at which one can therefore come, and in ``calls/`` and ``client/ledger/``,
which take no lock, every step there is, so that nothing depends on where the interpreter looks.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import bk_spark

SHIPPED = str(Path(bk_spark.__file__).parent)
DELIBERATE = str(Path(__file__).parent / "bugs.py")
EVERY_STEP = (f"{SHIPPED}/calls", f"{SHIPPED}/client/ledger", DELIBERATE)
RETURNS_IN_ONE_STEP = "resumed_iterator.py"
"""Between what says that an item was returned and its return Python cannot look for signals: there is no call."""


class Interruption:
    """``step`` counts from 1; 0 interrupts nothing, and counts."""

    def __init__(self, step: int) -> None:
        self._step = step
        self.steps = 0
        self._tracing = self._enter
        """Kept: where a finalizer stops the tracing, CPython 3.11 may still call this once, whether or not it is freed."""

    def during(self, call: Callable[[], Any]) -> Any:
        """Make a call, in this thread. Raises KeyboardInterrupt from inside of it."""
        before = sys.gettrace()
        sys.settrace(self._tracing)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith((SHIPPED, DELIBERATE)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        is_anywhere, last = name.startswith(EVERY_STEP) and not name.endswith(RETURNS_IN_ONE_STEP), "RESUME"

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "opcode":
                may_come = is_anywhere or _looks_for_signals(last)
                last = dis.opname[frame.f_code.co_code[frame.f_lasti]]
                if may_come and last != "PUSH_EXC_INFO":  # where a handler is entered none can come, and its frame would stay
                    self.steps += 1
                    if self.steps == self._step:
                        sys.settrace(None)
                        raise KeyboardInterrupt
            return step

        return step


def _looks_for_signals(opcode: str) -> bool:
    return opcode.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
