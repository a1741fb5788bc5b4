"""``bk-spark bookie gc`` and ``bk-spark bookie scrub|status``: what an operator asks of a running bookie."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_record
from bk_spark.errors import ConfigError
from bk_spark.wire.messages import AdministerReply, AdminOperation, Status

LOOK_S = 0.5
"""Between two looks at what is waited for."""

BEGIN_S = 60.0
"""A run that is not under way and has not ended for this long never began: it begins within a second."""


class _Waited(NamedTuple):
    """How a run is watched: which figures tell of it, and who is asked for them without another one being begun."""

    ask: AdminOperation
    prefix: str


_WAITED = {
    AdminOperation.GC_RUN: _Waited(AdminOperation.GC_STATUS, ""),
    AdminOperation.SCRUB: _Waited(AdminOperation.BOOKIE_STATUS, "scrub_"),
}


def can_wait(operation: AdminOperation) -> bool:
    """Whether it begins something that ends by itself."""
    return operation in _WAITED


def asks(operation: AdminOperation) -> Callable[[argparse.Namespace], None]:
    """The command that asks the bookie ``args.bookie_id`` for ``operation`` and prints its answer."""

    def handler(args: argparse.Namespace) -> None:
        with bookkeeper(args) as client, ProgressBar() as bar:
            reply = _ask(client, args.bookie_id, operation)
            if can_wait(operation) and args.wait:
                reply = _await_end(client, args.bookie_id, _WAITED[operation], reply.figures, bar)
        figures = dict(sorted(reply.figures.items()))  # they come in any order
        print_record({"bookie_id": args.bookie_id, "detail": reply.detail or None, **figures}, as_json=args.json)

    return handler


def _ask(client: BookKeeper, bookie_id: str, operation: AdminOperation) -> AdministerReply:
    reply = client.administer_bookie(bookie_id, operation)
    if reply.status is not Status.OK:
        raise ConfigError("bookie", bookie_id, f"{reply.status.name}: {reply.detail}")
    return reply


def _await_end(
    client: BookKeeper, bookie_id: str, waited: _Waited, before: Mapping[str, int], bar: ProgressBar
) -> AdministerReply:
    """The bookie's figures after the run that was asked for; one that was under way then goes before it."""
    last_run = before["runs"] + 1 + before["is_running"]
    idle_since_s = time.monotonic()
    while True:
        reply = _ask(client, bookie_id, waited.ask)
        figures = {name.removeprefix(waited.prefix): value for name, value in reply.figures.items()}
        if figures["runs"] >= last_run:
            return reply
        if figures["is_running"]:
            idle_since_s = time.monotonic()
        elif figures.get("is_suspended"):
            raise ConfigError("bookie", bookie_id, "it is suspended: run 'bk-spark bookie gc resume' first")
        elif time.monotonic() - idle_since_s > BEGIN_S:
            raise ConfigError("bookie", bookie_id, "the run did not go through: its log says why")
        _show(bar, figures)
        time.sleep(LOOK_S)


def _show(bar: ProgressBar, figures: Mapping[str, int]) -> None:
    if "logs_compacted" in figures:
        bar.count("entry logs compacted", figures["logs_compacted"])
    else:
        bar.count("batches", figures["rows_checked"])
