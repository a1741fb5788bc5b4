"""Which ledgers there are: the hierarchy of ledger znodes, listed.

Directories without ledgers are crossed. A listing is whole or raises; it proves an absence only after a ``sync`` of the same
session, and then only for ledgers that were known before it.

Ref: docs/rules.md, protocol rule 44 and storage rule 8; znodes.py for the layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from bk_spark.metadata_store import MetadataStore, NoNodeError
from bk_spark.znodes import Znodes, is_ledger_directory, is_ledger_subdirectory, ledger_id_of


def ledger_ids(store: MetadataStore, znodes: Znodes) -> Iterator[int]:
    """The ids of all ledgers, ascending; at most 10,000 names are held at a time."""
    for directory in filter(is_ledger_directory, _children(store, znodes.root)):
        for subdirectory in filter(is_ledger_subdirectory, _children(store, f"{znodes.root}/{directory}")):
            yield from _ids_below(store, znodes, directory, subdirectory)


def listed_among(store: MetadataStore, znodes: Znodes, ledger_ids: Iterable[int]) -> set[int]:
    """Those of ``ledger_ids``, which ascend, that are listed: reads only the directories in which they would be."""
    found: set[int] = set()
    for path, wanted in itertools.groupby(ledger_ids, lambda ledger_id: znodes.ledger(ledger_id).rsplit("/", 1)[0]):
        directory, subdirectory = path.rsplit("/", 2)[1:]
        found |= set(wanted).intersection(_ids_below(store, znodes, directory, subdirectory))
    return found


def _ids_below(store: MetadataStore, znodes: Znodes, directory: str, subdirectory: str) -> Iterator[int]:
    for name in _children(store, f"{znodes.root}/{directory}/{subdirectory}"):
        ledger_id = ledger_id_of(directory, subdirectory, name)
        if ledger_id is not None:
            yield ledger_id


def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNodeError:
        return []
