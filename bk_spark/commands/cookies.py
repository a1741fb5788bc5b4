"""``bk-spark cookie``: whose directories are whose, and what to do when they no longer fit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot import MetadataPlace, fix_cookies
from bk_spark.bookie.identity.cookie import locked
from bk_spark.bookie.identity.cookie_file import read_znode
from bk_spark.bookie.identity.identity import Identity, examine
from bk_spark.commands.connect import metadata_store
from bk_spark.commands.output import print_record, print_records
from bk_spark.commands.settings import bookie_config
from bk_spark.metadata.registration import no_cookie, remove_cookie
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

_COLUMNS = ["where", "use", "directory_id", "boot", "state"]


def show(args: argparse.Namespace) -> None:
    """The metadata store's side, and with ``--data-dir`` the directories' side."""
    config = bookie_config(args)
    with metadata_store(args, config.client_config()) as (store, znodes):
        records = list(_stored_records(args.bookie_id, store, znodes))
        if args.data_dir:
            directories = Directories.of(Path(args.data_dir), config)
            records += _directory_records(examine(directories, store, znodes, REAL_DISK, bookie_id=args.bookie_id))
        print_records(records, _COLUMNS, as_json=args.json)


def fix(args: argparse.Namespace) -> None:
    """Make the directories those of the bookie, after it is on record that data may be lost."""
    config = bookie_config(args)
    directories = Directories.of(Path(args.data_dir), config)
    with metadata_store(args, config.client_config()) as (store, znodes), locked(directories.roots, REAL_DISK):
        identity = examine(directories, store, znodes, REAL_DISK, bookie_id=args.bookie_id)
        if identity.znode is None and not any(root.cookie for root in identity.roots):
            raise no_cookie(args.bookie_id, store)  # nothing knows the id: a typing error must not become a bookie
        repaired = fix_cookies(identity, MetadataPlace(store, znodes), REAL_DISK)
        is_lost = any(mismatch.is_loss for mismatch in identity.mismatches)
    consequence = "none"
    if is_lost:
        consequence = "the bookie starts in limbo and repairs itself from the other replicas"
    print_record(
        {"bookie_id": args.bookie_id, "repaired": "; ".join(repaired) or "nothing, all fits", "consequence": consequence},
        as_json=args.json,
    )


def delete(args: argparse.Namespace) -> None:
    """Remove a bookie that is not there from the cluster."""
    with metadata_store(args) as (store, znodes):
        remove_cookie(store, znodes, args.bookie_id)
    consequence = "its directories start no more, and what no other bookie holds cannot be read"
    print_record({"bookie_id": args.bookie_id, "deleted": True, "consequence": consequence}, as_json=args.json)


def _stored_records(bookie_id: str, store: MetadataStore, znodes: Znodes) -> Iterator[dict[str, Any]]:
    znode = read_znode(store, znodes, bookie_id)
    if znode is None:
        raise no_cookie(bookie_id, store)
    if znode.cookie is None:
        yield {"where": store.uri, "use": "", "directory_id": "", "boot": "", "state": str(znode.damage)}
        return
    boot = str(znode.cookie.boot.number)
    for place in znode.cookie.places:
        yield {"where": store.uri, "use": place.use, "directory_id": place.directory_id, "boot": boot, "state": "listed"}


def _directory_records(identity: Identity) -> Iterator[dict[str, Any]]:
    for root in identity.roots:
        yield {
            "where": str(root.path),
            "use": " ".join(root.uses),
            "directory_id": root.cookie.directory_id if root.cookie else "",
            "boot": str(root.record.confirmed.number) if root.record else "",
            "state": root.record.phase.value if root.record else "not formatted",
        }
    for mismatch in identity.mismatches:
        yield {"where": "", "use": "", "directory_id": "", "boot": "", "state": str(mismatch.error)}
