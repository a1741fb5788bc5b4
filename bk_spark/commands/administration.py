"""``bk-spark bookie gc`` and ``bk-spark bookie scrub|status``: what an operator asks of a running bookie."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import print_record
from bk_spark.errors import ConfigError
from bk_spark.wire import Operation, Status


def asks(operation: Operation) -> Callable[[argparse.Namespace], None]:
    """The command that asks the bookie ``args.bookie_id`` for ``operation`` and prints its answer."""

    def handler(args: argparse.Namespace) -> None:
        with bookkeeper(args) as client:
            reply = client.administer_bookie(args.bookie_id, operation)
        if reply.status is not Status.OK:
            raise ConfigError("bookie", args.bookie_id, f"{reply.status.name}: {reply.detail}")
        figures = dict(sorted(reply.figures.items()))  # they come in any order
        print_record({"bookie_id": args.bookie_id, "detail": reply.detail or None, **figures}, as_json=args.json)

    return handler
