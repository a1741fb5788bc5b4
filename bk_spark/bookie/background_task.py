"""What the background tasks of a bookie share: a thread, a status for operators, and a stop that ends pauses at once."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """How a task stands. Subclasses add its figures: numbers and flags."""

    last_error: str = ""
    """What went wrong at the last try; empty if nothing did."""

    def figures(self) -> dict[str, int]:
        return {name: int(value) for name, value in asdict(self).items() if name != "last_error"}


StatusT = TypeVar("StatusT", bound=TaskStatus)


class BackgroundTask(Generic[StatusT]):
    """Runs ``_serve``, which a subclass defines, on a thread of its own. Any thread may call the public methods."""

    def __init__(self, name: str, status: StatusT, *, stop_s: float | None = None) -> None:
        """``stop`` waits ``stop_s`` at most, and the thread may outlast it as a daemon; None: it waits for the thread's end."""
        self._changed = threading.Condition()
        """Guards the fields below, and is notified when one of them changes."""
        self._status = status
        self._is_stopped = False
        self._stop_s = stop_s
        self._thread = threading.Thread(target=self._serve, name=name, daemon=stop_s is not None)

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the work under way at its next step, and wait for that. The bookie must still be open."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(self._stop_s)

    def status(self) -> StatusT:
        with self._changed:
            return self._status

    def _serve(self) -> None:
        raise NotImplementedError

    def _may_go_on(self) -> bool:
        """Whether the work under way may take its next step."""
        return not self._is_stopped

    def _pause(self, seconds: float) -> bool:
        """Wait so long, or until the work under way is to end: then True."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._may_go_on(), seconds)

    def _note(self, **changes: object) -> None:
        """Change fields of the status."""
        with self._changed:
            self._status = replace(self._status, **changes)  # type: ignore[arg-type]
            self._changed.notify_all()
