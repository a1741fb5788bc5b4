"""``bk-spark cookie``: which directories belong to which bookie, and the repair where they no longer match."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot import MetadataPlace, fix_cookies
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.cookie_file import read_znode
from bk_spark.bookie.identity.identity import Identity, examine
from bk_spark.commands.arguments import Commands, command, directory, group_of, valid_bookie_id
from bk_spark.commands.bookies import listing
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import Record, print_record, print_records
from bk_spark.commands.program.question import add_yes, check_wanted
from bk_spark.commands.settings import add_settings, bookie_config
from bk_spark.embedded.owners import BOOKIE, owner_of
from bk_spark.metadata.registration import no_cookie, remove_cookie
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

_COLUMNS = ["where", "use", "directory_id", "boot", "state"]


def add(commands: Commands) -> None:
    group = group_of(commands, "cookie", "cookies: which directories are which bookie's")
    listing.add_cookie_list(group)
    for name, text, handler in (
        ("show", "what the metadata store knows of a bookie; with --data-dir also what its directories say", _show),
        (
            "fix",
            "give a bookie that has lost a disk the directories named here, empty ones in the place of lost ones: "
            "it then starts in limbo and repairs itself from the other replicas",
            _fix,
        ),
        (
            "delete",
            "remove a bookie that is not running from the cluster: its directories then start no more, "
            "and what no other bookie holds cannot be read",
            _delete,
        ),
    ):
        parser = command(group, name, text, handler)
        parser.add_argument(
            "bookie_id", type=valid_bookie_id, metavar="BOOKIE_ID", help="as 'bk-spark bookie id --data-dir D' prints it"
        )
        if name != "delete":
            is_fix = name == "fix"
            parser.add_argument("--data-dir", type=directory, metavar="D", required=is_fix, help="the bookie's directory")
            add_settings(parser)
        else:
            add_yes(parser)


def _show(args: argparse.Namespace) -> None:
    """What the metadata store knows, and with ``--data-dir`` what the directories say."""
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config) if args.data_dir else None
    with metadata_store(args, config.client_config(), directories) as (store, znodes):
        records = list(_stored_records(args.bookie_id, store, znodes))
        if directories is not None:
            records += _directory_records(examine(directories, store, znodes, REAL_DISK, bookie_id=args.bookie_id))
        print_records(records, _COLUMNS, as_json=args.json)


def _fix(args: argparse.Namespace) -> None:
    """Make the directories those of the bookie, after recording that data may be lost."""
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config)
    with metadata_store(args, config.client_config(), directories) as (store, znodes), locked(directories.roots, REAL_DISK):
        identity = examine(directories, store, znodes, REAL_DISK, bookie_id=args.bookie_id)
        if identity.znode is None and not any(root.cookie for root in identity.roots):
            raise no_cookie(args.bookie_id, store)  # nothing knows the id: a typing error must not become a bookie
        for root in identity.roots:
            owner = owner_of(root.path)
            if root.cookie is None and owner not in ("", BOOKIE):
                raise root.wrong(f"it is a data directory of {owner}: name the bookie's, or an empty one")
        repaired = fix_cookies(identity, MetadataPlace(store, znodes), REAL_DISK)
        is_lost = any(mismatch.is_loss for mismatch in identity.mismatches)
    consequence = "none"
    if is_lost:
        consequence = "the bookie starts in limbo and repairs itself from the other replicas"
    print_record(
        {"bookie_id": args.bookie_id, "repaired": "; ".join(repaired) or "nothing, all fits", "consequence": consequence},
        as_json=args.json,
    )


def _delete(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        check_wanted(args, "the cookie of bookie", args.bookie_id)
        remove_cookie(store, znodes, args.bookie_id)
    consequence = "its directories start no more, and what no other bookie holds cannot be read"
    print_record({"bookie_id": args.bookie_id, "deleted": True, "consequence": consequence}, as_json=args.json)


def _stored_records(bookie_id: str, store: MetadataStore, znodes: Znodes) -> Iterator[Record]:
    znode = read_znode(store, znodes, bookie_id)
    if znode is None:
        raise no_cookie(bookie_id, store)
    if znode.cookie is None:
        yield _record(store.uri, "", "", "", str(znode.damage))
        return
    for place in znode.cookie.places:
        yield _record(store.uri, place.use, place.directory_id, str(znode.cookie.boot.number), "listed")


def _directory_records(identity: Identity) -> Iterator[Record]:
    for root in identity.roots:
        directory_id = root.cookie.directory_id if root.cookie else ""
        boot, state = (str(root.record.confirmed.number), root.record.phase.value) if root.record else ("", "not formatted")
        yield _record(str(root.path), " ".join(root.uses), directory_id, boot, state)
    for mismatch in identity.mismatches:
        yield _record("", "", "", "", str(mismatch.error))


def _record(*values: str) -> Record:
    return dict(zip(_COLUMNS, values, strict=True))
