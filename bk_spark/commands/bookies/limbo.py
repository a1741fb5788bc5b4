"""``bk-spark bookie limbo``: which ledgers a bookie's limbo waits for and why, and the way out if it would never end."""

from __future__ import annotations

import argparse

from bk_spark.commands.arguments import Commands, command, ledger_id, valid_bookie_id
from bk_spark.commands.connect import accepted, bookkeeper
from bk_spark.commands.output import print_records, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.wire.messages import MAX_NAMED_LEDGERS, AdminOperation


def add(group: Commands) -> None:
    text = (
        "which ledgers a running bookie cannot repair after a possible loss of data, and why; with --end it stops waiting "
        "for some of them"
    )
    parser = command(group, "limbo", text, _limbo)
    parser.add_argument("bookie_id", type=valid_bookie_id, metavar="BOOKIE_ID", help="as 'bk-spark bookie list' shows it")
    text = f"end the limbo of these ledgers, {MAX_NAMED_LEDGERS} at most; needs --accept-loss"
    parser.add_argument("--end", metavar="LEDGER_ID", type=ledger_id, nargs="+", help=text)
    text = "with --end: you accept that entries which only this bookie held are denied from then on, and may be lost for good"
    parser.add_argument("--accept-loss", action="store_true", help=text)


def _limbo(args: argparse.Namespace) -> None:
    """Print a record for each ledger that limbo waits for. Raises ConfigError if the bookie refuses or does not answer."""
    to_end: list[int] = args.end or []
    _check(to_end, is_accepted=args.accept_loss)
    with bookkeeper(args) as client:
        operation = AdminOperation.LIMBO_END if to_end else AdminOperation.LIMBO_STATUS
        reply = accepted(args.bookie_id, client.administer_bookie(args.bookie_id, operation, to_end))
    records = [{"ledger_id": one, "waits_for": why} for one, why in sorted(reply.ledgers.items())]
    print_records(records, ["ledger_id", "waits_for"], as_json=args.json)
    if not reply.figures.get("limbo"):
        say(f"bookie {args.bookie_id} is not in limbo")
    elif reply.figures["unsettled"] > len(records):
        say(f"limbo waits for {reply.figures['unsettled']} ledgers in all")


def _check(ledger_ids: list[int], *, is_accepted: bool) -> None:
    if ledger_ids and not is_accepted:
        raise UsageError("--end loses entries that only this bookie held: give --accept-loss, too, if nothing brings them back")
    if is_accepted and not ledger_ids:
        raise UsageError("--accept-loss is for --end: name the ledgers whose limbo is to end")
    if len(ledger_ids) > MAX_NAMED_LEDGERS:
        raise UsageError(f"--end takes {MAX_NAMED_LEDGERS} ledgers at once, not {len(ledger_ids)}")
