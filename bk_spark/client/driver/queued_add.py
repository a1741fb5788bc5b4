"""An add on its way to one bookie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.wire.messages import AddReply, AddRequest


@dataclass(slots=True, eq=False)
class QueuedAdd:
    """An add until it is answered. ``request`` is None once it was sent or cancelled."""

    request_id: int
    request: AddRequest | None
    on_reply: Callable[[AddReply], None]

    def cancel(self) -> None:
        """Drop the bytes, so that the queue of a bookie that stands still holds only what is still wanted."""
        self.request = None
