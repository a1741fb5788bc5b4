"""Something that happens between any two calls of a session to the metadata store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bk_spark.metadata.store import MetadataStore
from tests.unit.log.aged_world import AgedWorld

CALLS = ("get", "get_many", "children", "transaction", "delete", "set", "create", "ensure_path")


def interrupted(session: MetadataStore, step: int, action: Callable[[], Any]) -> list[int]:
    """``action`` comes before call number ``step`` of the session, each value of a ``get_many`` counted as a call.

    Gives a list that is empty until then.
    """
    calls = itertools.count()
    is_inside: list[bool] = []
    came: list[int] = []

    def watched(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if is_inside:
                return real(*arguments, **options)
            is_inside.append(True)
            try:
                if next(calls) == step:
                    came.append(step)
                    action()
                return real(*arguments, **options)
            finally:
                is_inside.clear()

        return call

    for name in CALLS:
        setattr(session, name, watched(getattr(session, name)))
    together = session.get_many
    session.get_many = lambda paths: [together([path])[0] for path in paths]  # type: ignore[method-assign]
    return came


def at_every_step(
    new_world: Callable[[], AgedWorld], action: Callable[[AgedWorld], Any], at_least: int = 10
) -> Iterator[tuple[AgedWorld, MetadataStore]]:
    """A world anew, and a session on it that ``action`` interrupts, one call later than the one before.

    Ends with the first session that did not make so many calls, of which there must be ``at_least``.
    """
    for step in itertools.count():
        world = new_world()
        session = world.new_session()
        came = interrupted(session, step, partial(action, world))
        yield world, session
        if not came:
            assert step >= at_least, f"only {step} calls were made"
            return
