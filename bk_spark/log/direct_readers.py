"""Who reads a secured log directly, beside the cluster's members: identities of ZooKeeper that bookies need not know.

They may read, in ZooKeeper, what a reader of the log needs, and nothing else: the log's name, head, versions, schemas and
checkpoints, and the metadata of its keyed ledgers, in which the read keys are; and where the cluster's bookies are.

The head and the secret name them, and one transaction changes both. After it commits and jobs make what they make for the new
ones: a commit is refused at another head, the creation of a ledger at another secret. So a pass over what was there before
finds all the rest. It ends once the head names those whom it gave to, so of two passes at once the last one's readers stay.

A second call does what the first one left undone. Ref: DESIGN.md, "Who may do what".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bk_spark.entries.log_secret import decode_secret, encode_secret, lost_secret
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.checkpoint import PAGES_AT_ONCE
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tree import READS_AT_ONCE, children_of, chunks, grandchildren_of, number_of
from bk_spark.log.stored.values import CommittedLedger, Head, LogVersion, OpenLedger, Page
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata
from bk_spark.metadata.store import SetValue, TransactionFailedError, Versioned, find
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.metadata.zookeeper_members import check_identity, members

MAX_READERS = 100
"""Of one log: its head, which each commit writes, names all of them."""

_TRIES = 100
"""Each further try means that a commit to the log succeeded meanwhile, or that somebody else changed its readers."""


@dataclass(frozen=True, slots=True)
class DirectReaders:
    """What a change of a log's readers found and did."""

    log: str
    readers: tuple[str, ...]
    """From now on."""
    changed: int
    """Znodes whose access control was another one."""


def direct_readers(logs: LogStore, name: str) -> DirectReaders:
    """The log's readers, as its head names them. Raises NoSuchLogError."""
    uid = logs.names.uid(name)
    return DirectReaders(name, logs.names.fresh_head(name, uid).readers, 0)


def change_direct_readers(
    store: ZooKeeperStore, logs: LogStore, name: str, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> DirectReaders:
    """Let identities read the log directly, and others no longer. ``store`` is the session of ``logs``.

    Raises ConfigError for a log that is not secured, that lists ledgers without keys, or that has a tier; for what is no
    identity, or a member's; and where everybody may change the cluster's root. MetadataConflictError, MetadataUnavailableError:
    call it again with the same arguments.
    """
    if add:
        _check(store, logs, name, add)
    given = set_readers(logs, name, add, remove)
    return replace(given, changed=given.changed + _give_cluster(store, logs))


def set_readers(logs: LogStore, name: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> DirectReaders:
    """The part of ``change_direct_readers`` that is the log's own: who finds the bookies is another one. Raises as it does."""
    uid = logs.names.uid(name)
    head = _mark(logs, name, uid, add, remove)
    changed = 0
    for _ in range(_TRIES):
        changed += _give_log(logs, uid, head)
        now = logs.names.fresh_head(name, uid)
        if now.readers == head.readers:
            return DirectReaders(name, head.readers, changed)
        head = now
    raise MetadataConflictError(f"the readers of log '{name}'", f"somebody changed them in each of {_TRIES} passes: try again")


def _check(store: ZooKeeperStore, logs: LogStore, name: str, add: Sequence[str]) -> None:
    for one in add:
        check_identity("a reader (--add)", one)
    root_members = members(store, logs.znodes.root)
    if "world:anyone" in root_members:
        remedy = "everybody may change it, so nobody can be given less: 'bk-spark cluster protect' gives it to its members"
        raise ConfigError("the root of the cluster", logs.znodes.root, remedy)
    known = [one for one in add if one in root_members]
    if known:
        raise ConfigError(
            "a reader (--add)", known[0], "it is a member of the cluster, which reads and changes every log already"
        )
    snapshot = logs.reader.snapshot(name)
    ledgers: list[CommittedLedger | OpenLedger] = [*snapshot.ledgers, *snapshot.open_ledgers]
    listed = [one.ledger_id for one in ledgers]
    without = sum(one is not None and not one.is_keyed for one in logs.ledgers.find(listed))
    if without:
        remedy = (
            f"{without} of its {len(listed)} ledgers were written before it was secured, and bookies give these to members "
            f"alone: 'bk-spark log compact {name}' writes them anew, with keys"
        )
        raise ConfigError("the log to read directly", name, remedy)
    head = logs.names.head(name, snapshot.uid)
    wanted = replace(head, readers=tuple(dict.fromkeys((*head.readers, *add))))
    _check_head(wanted)
    # The server says what is no identity to it: first at the name, which tells nothing, so that none such is ever stored.
    store.share([logs.znodes.log_name(name)], wanted.readers)


def _check_head(head: Head) -> None:
    if not head.is_secured:
        remedy = f"it is not secured, so its ledgers have no keys to read with: 'bk-spark log secure {head.name}' comes first"
        raise ConfigError("the log to read directly", head.name, remedy)
    if head.tier is not None:
        remedy = "a part of its rows is in the table of its tier, which has rights of its own: such logs have no direct readers"
        raise ConfigError("the log to read directly", head.name, remedy)
    if len(head.readers) > MAX_READERS:
        what = f"the number of direct readers of log '{head.name}'"
        raise ConfigError(what, len(head.readers), f"there may be {MAX_READERS}: remove some")


def _mark(logs: LogStore, name: str, uid: str, add: Sequence[str], remove: Sequence[str]) -> Head:
    """Change the readers in the head and in the secret, in one transaction. Returns the head with those of now."""
    paths, store = logs.names.paths(uid), logs.store
    for _ in range(_TRIES):
        store.sync(paths.head)
        head, version = logs.names.stored_head(name, uid)
        readers = tuple(dict.fromkeys(one for one in (*head.readers, *add) if one not in remove))
        wanted = replace(head, readers=readers)
        if readers:
            _check_head(wanted)
        if wanted == head:
            return head
        stored = find(store, paths.secret)
        if stored is None:
            raise lost_secret(uid, f"to log '{name}'")
        secret = encode_secret(decode_secret(uid, stored.value).secret, readers)
        try:
            store.transaction([SetValue(paths.head, wanted.encode(), version), SetValue(paths.secret, secret, stored.version)])
            return wanted
        except TransactionFailedError:
            continue
    raise MetadataConflictError(f"log '{name}'", f"{_TRIES} commits came between: stop its writers for a moment, try again")


def _give_log(logs: LogStore, uid: str, head: Head) -> int:
    """Give what is there of the log to the readers in its head. Returns how many znodes had another access control."""
    store, paths = logs.store, logs.names.paths(uid)
    changed = store.share([logs.znodes.log_name(head.name), paths.head], head.readers)
    ledger_ids = set(_of_jobs(logs, paths))  # first: a job that commits meanwhile has its ledgers in a version from then on
    for found, ledgers in _records(logs, paths):
        changed += store.share(found, head.readers)
        ledger_ids.update(ledgers)
    for some in chunks(sorted(ledger_ids), READS_AT_ONCE):
        own = [one for one in logs.ledgers.find(some) if one is not None and _is_readable(one, uid)]
        changed += store.share([logs.znodes.ledger(one.ledger_id) for one in own], head.readers)
    return changed


def _is_readable(metadata: LedgerMetadata, uid: str) -> bool:
    """A ledger without a key may have a password of members in its metadata."""
    return metadata.is_keyed and metadata.custom(LOG_TAG) == uid.encode()


def _of_jobs(logs: LogStore, paths: LogPaths) -> Iterator[int]:
    """The ledgers of the log's write jobs that have not been cleared."""
    for job in grandchildren_of(logs.store, paths.jobs):
        yield from map(number_of, grandchildren_of(logs.store, paths.job(job.rsplit("/", 1)[1]).ledgers))


def _records(logs: LogStore, paths: LogPaths) -> Iterator[tuple[list[str], set[int]]]:
    """The znodes that readers read, some at once, with the ledgers that they name."""
    store = logs.store
    yield [f"{paths.schemas}/{one}" for one in children_of(store, paths.schemas)], set()
    for bucket in children_of(store, paths.versions):
        here = f"{paths.versions}/{bucket}"
        for names in chunks(children_of(store, here), READS_AT_ONCE):
            found = [f"{here}/{one}" for one in names]
            yield from _versions(logs, paths, found)
    for bucket in children_of(store, paths.checkpoints):
        here = f"{paths.checkpoints}/{bucket}"
        yield [here], set()
        for one in children_of(store, here):
            pages = [f"{here}/{one}/{page}" for page in children_of(store, f"{here}/{one}")]
            yield [f"{here}/{one}", *pages], _listed(store.get_many(pages))


def _versions(logs: LogStore, paths: LogPaths, found: list[str]) -> Iterator[tuple[list[str], set[int]]]:
    pages: list[str] = []
    ledgers: set[int] = set()
    for stored in logs.store.get_many(found):
        if stored is not None:
            version = LogVersion.decode("a version of the log", stored.value)
            pages += [paths.job(version.job_id).page(index) for index in range(version.pages)]
            ledgers.update(one.ledger_id for one in version.closed)
            ledgers.update([] if version.opened is None else [version.opened])
    yield found, ledgers
    for some in chunks(pages, PAGES_AT_ONCE):
        yield list(some), _listed(logs.store.get_many(some))


def _listed(pages: Sequence[Versioned | None]) -> set[int]:
    decoded = (Page.decode("a page of the log", one.value) for one in pages if one is not None)
    return {ledger.ledger_id for page in decoded for ledger in page.ledgers}


def _give_cluster(store: ZooKeeperStore, logs: LogStore) -> int:
    """Let the readers of all logs find the cluster and its bookies. Returns how many znodes had another access control.

    The access control of the directory of bookies is replaced at the version at which it was before the heads were read. So of
    two changes at once the second one sees the head of the first one.
    """
    znodes = logs.znodes
    for _ in range(_TRIES):
        readers = store.change_readers(znodes.available, lambda _: _of_all_logs(logs))
        names = {path: children_of(store, path) for path in (znodes.available, znodes.read_only)}
        bookies = [f"{path}/{one}" for path, found in names.items() for one in found]
        changed = store.share([znodes.layout_path, znodes.instance_id, znodes.read_only, *bookies], readers)
        if store.readers(znodes.available) == readers:
            return changed
    raise MetadataConflictError("the readers of the cluster", f"somebody changed them in each of {_TRIES} passes: try again")


def _of_all_logs(logs: LogStore) -> tuple[str, ...]:
    found: set[str] = set()
    for names in chunks(logs.names.all(), READS_AT_ONCE):
        for head in logs.names.heads({uid: name for name, uid in logs.names.find_many(names).items()}).values():
            found.update(head.readers)
    return tuple(sorted(found))
