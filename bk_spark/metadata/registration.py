"""Who is there: the root of a cluster in the metadata store, and the registrations of its bookies.

A root is initialised once (``bk-spark cluster init``). A bookie that serves holds an ephemeral znode under its bookie
id, which goes with its session; its value says where the bookie listens. A **bookie id** names one formatting of one
set of disks, its **address** is where the process that serves them listens now, and may change.

Ref: Apache BookKeeper's BookieServiceInfoFormat; docs/formats.md, "Znodes of ledgers and bookies".
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from bk_spark.config import DEFAULT_RACK
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError, Versioned
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.ledger_metadata_pb2 import BookieServiceInfoFormat

PROTOCOL = "bk_spark-grpc"
"""The endpoint of a registration that bk_spark's clients speak to. An Apache bookie has none and is no bookie to us."""

HTTP_PROTOCOL = "http"
"""The endpoint of a registration that serves metrics and health."""

_HOST = re.compile(r"[^\s/,]{1,255}")
"""What may stand before a port: gRPC takes other things for other kinds of addresses, such as sockets in the file system."""

RACK_PROPERTY = "rack"
"""The property of a registration that names the bookie's rack."""


@dataclass(frozen=True, slots=True)
class BookieAddress:
    """Where a bookie listens, and in which rack it stands."""

    bookie_id: str
    host: str
    port: int
    rack: str = DEFAULT_RACK
    http: str | None = None
    """``host:port`` of its metrics and health; None if it has none."""


@dataclass(frozen=True, slots=True)
class RegisteredBookie:
    """A bookie that is there. A read-only one serves reads, fences and recovery, and takes no new ledgers."""

    bookie_id: str
    address: BookieAddress
    read_only: bool

    @property
    def rack(self) -> str:
        return self.address.rack

    @property
    def http(self) -> str | None:
        """``host:port`` of its metrics and health; None if it has none."""
        return self.address.http


def initialise_cluster(store: MetadataStore, znodes: Znodes) -> None:
    """Make the root and all that belongs to every cluster. Repeating it, or two at once, does no harm.

    Raises ConfigError if the root has another ledger layout: that stays what it is.
    """
    for path in (znodes.id_generator, znodes.read_only, znodes.cookies, znodes.log_names, znodes.log_data):
        store.ensure_path(path)
    with contextlib.suppress(NodeExistsError):
        store.create(znodes.instance_id, str(uuid.uuid4()).encode())
    # The layout comes last: where it stands, everything stands.
    with contextlib.suppress(NodeExistsError):
        store.create(znodes.layout_path, znodes.layout_value)
    check_layout(store, znodes)


def open_root(store: MetadataStore, root: str) -> Znodes:
    """The paths of the cluster at ``root``, with its ledger layout. Raises ConfigError if there is none, or of another kind."""
    layout = _stored_layout(store, root)
    if layout is None:
        raise _not_initialised(store)
    return Znodes(root, layout)


def intended_root(store: MetadataStore, root: str, layout: LedgerLayout | None) -> Znodes:
    """The paths for ``initialise_cluster``. ``layout=None``: that of the cluster which is there, or else the default."""
    return Znodes(root, layout or _stored_layout(store, root) or LedgerLayout.HIERARCHICAL)


def check_layout(store: MetadataStore, znodes: Znodes) -> None:
    """Raise ConfigError unless the root is initialised, with the ledger layout of ``znodes``."""
    layout = open_root(store, znodes.root).layout
    if layout is not znodes.layout:
        raise _other_layout(store, layout.stored, f"a cluster keeps its layout, and this is not {znodes.layout.value}")


def instance_id(store: MetadataStore, znodes: Znodes) -> str:
    """The random id that tells this cluster from every other, also from one made anew at the same root."""
    try:
        return store.get(znodes.instance_id).value.decode()
    except NoNodeError:
        raise _not_initialised(store) from None


def sync_same_cluster(store: MetadataStore, znodes: Znodes, expected: str) -> None:
    """Later reads of this session see all that was committed before: call it before acting on what is absent.

    Raises MetadataConflictError if the instance id is not ``expected``: a root that was made anew lacks every ledger.
    """
    store.sync(znodes.root)
    found = instance_id(store, znodes)
    if found != expected:
        problem = f"it has instance id {found}, and had {expected} when this bookie started: nothing is concluded from it"
        raise MetadataConflictError(f"the metadata store {store.uri}", problem)


def register(
    store: MetadataStore,
    znodes: Znodes,
    address: BookieAddress,
    read_only: bool = False,
    *,
    pause: Callable[[], bool] = lambda: False,
) -> None:
    """Announce a bookie, for as long as the session of ``store`` lives. Repeating it, or changing ``read_only``, is fine.

    The caller holds the lock of the bookie's data directory and already listens at ``address``. So a registration of the
    same id and address can only be left over from a session of its own, or of a dead process, and is replaced. One with
    another address is waited for: ``pause`` is called between two looks, sleeps, and ends the waiting by giving False.
    Then MetadataConflictError is raised, which names the other address.
    """
    path = znodes.registration(address.bookie_id, read_only=read_only)
    value = _encode(address)
    while not _try_register(store, path, value):
        other = _found(store, path)
        if other is not None and _is_at(address, path, other):
            _remove(store, path, other.version)
        elif other is not None and not pause():
            raise MetadataConflictError(f"the registration of bookie {address.bookie_id}", _held_by(path, other))
    _remove(store, znodes.registration(address.bookie_id, read_only=not read_only))


def withdraw(store: MetadataStore, znodes: Znodes, address: BookieAddress) -> None:
    """Remove the registration of a bookie that stops. What a process at another address registered stays."""
    for read_only in (False, True):
        path = znodes.registration(address.bookie_id, read_only=read_only)
        found = _found(store, path)
        if found is not None and _is_at(address, path, found):
            _remove(store, path, found.version)


def unregister(store: MetadataStore, znodes: Znodes, bookie_id: str) -> None:
    """Remove what a bookie that is known to be dead left behind, instead of waiting for its session to expire."""
    for read_only in (False, True):
        _remove(store, znodes.registration(bookie_id, read_only=read_only))


def list_bookies(store: MetadataStore, znodes: Znodes) -> list[RegisteredBookie]:
    """The bookies that are registered now, in the order of their ids, read-only ones included."""
    read_only = set(_names(store, znodes, znodes.read_only))
    writable = set(_names(store, znodes, znodes.available)) - {_read_only_name(znodes)} - read_only
    return sorted(
        _registered(store, znodes, sorted(writable), read_only=False)
        + _registered(store, znodes, sorted(read_only), read_only=True),
        key=lambda bookie: bookie.bookie_id,
    )


def watch_bookies(store: MetadataStore, znodes: Znodes, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` (from any thread, briefly) when a bookie comes, goes or changes its mode, until the store closes.

    Also after a lost connection or session, when something may have changed: it says that one should look, not what changed.
    """
    for path in (znodes.available, znodes.read_only):
        store.watch_children(path, on_change)


def lookup(store: MetadataStore, znodes: Znodes, bookie_id: str) -> BookieAddress | None:
    """Where a bookie listens; None if it is not registered, which does not say that it is dead."""
    paths = [znodes.registration(bookie_id, read_only=read_only) for read_only in (False, True)]
    for path, found in zip(paths, store.get_many(paths), strict=True):
        if found is not None:
            return _decode(bookie_id, path, found.value)
    return None


def _registered(store: MetadataStore, znodes: Znodes, ids: Sequence[str], *, read_only: bool) -> list[RegisteredBookie]:
    paths = [znodes.registration(bookie_id, read_only=read_only) for bookie_id in ids]
    bookies = []
    for bookie_id, path, found in zip(ids, paths, store.get_many(paths), strict=True):
        address = _decode(bookie_id, path, found.value) if found is not None else None
        if address is not None:
            bookies.append(RegisteredBookie(bookie_id, address, read_only))
    return bookies


def _names(store: MetadataStore, znodes: Znodes, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNodeError:
        raise _not_initialised(store) from None


def _read_only_name(znodes: Znodes) -> str:
    return znodes.read_only.rsplit("/", 1)[1]


def _try_register(store: MetadataStore, path: str, value: bytes) -> bool:
    try:
        store.create(path, value, ephemeral=True)
    except NodeExistsError:
        return False
    except NoNodeError:
        raise _not_initialised(store) from None
    return True


def _found(store: MetadataStore, path: str) -> Versioned | None:
    return store.get_many([path])[0]


def _remove(store: MetadataStore, path: str, version: int | None = None) -> None:
    with contextlib.suppress(NoNodeError, BadVersionError):
        store.delete(path, version)


def _encode(address: BookieAddress) -> bytes:
    endpoints = [_endpoint("bookie", address.host, address.port, PROTOCOL)]
    if address.http is not None:
        host, _, port = address.http.rpartition(":")
        endpoints.append(_endpoint("http", host, int(port), HTTP_PROTOCOL))
    info = BookieServiceInfoFormat(endpoints=endpoints, properties={RACK_PROPERTY: address.rack})
    return info.SerializeToString(deterministic=True)


def _endpoint(name: str, host: str, port: int, protocol: str) -> BookieServiceInfoFormat.Endpoint:
    return BookieServiceInfoFormat.Endpoint(id=name, host=host, port=port, protocol=protocol, auth=[], extensions=[])


def _decode(bookie_id: str, path: str, value: bytes) -> BookieAddress | None:
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError as problem:
        raise CorruptionError(f"the registration {path}", str(problem)) from problem
    ours = [endpoint for endpoint in info.endpoints if endpoint.protocol == PROTOCOL]
    rack = info.properties.get(RACK_PROPERTY, DEFAULT_RACK)
    https = [endpoint for endpoint in info.endpoints if endpoint.protocol == HTTP_PROTOCOL]
    for one in (*ours, *https):
        if not isinstance(one.host, str) or not _HOST.fullmatch(one.host) or not 0 < one.port < 65536:
            raise CorruptionError(f"the registration {path}", f"it names the host {one.host!r:.100} and port {one.port}")
    if not isinstance(rack, str):  # protobuf 2 gives a string that is no UTF-8 as bytes
        raise CorruptionError(f"the registration {path}", f"it names the rack {rack!r:.100}")
    http = f"{https[0].host}:{https[0].port}" if https else None
    return BookieAddress(bookie_id, ours[0].host, ours[0].port, rack, http) if ours else None


def _is_at(address: BookieAddress, path: str, other: Versioned) -> bool:
    """Whether a registration names this address; its rack may have been changed since."""
    found = _decode(address.bookie_id, path, other.value)
    return found is not None and (found.host, found.port) == (address.host, address.port)


def _held_by(path: str, other: Versioned) -> str:
    address = _decode("", path, other.value)
    where = f"at {address.host}:{address.port}" if address else "of another kind"
    return f"a process {where} holds it: stop that one, or wait for its session to expire"


def _stored_layout(store: MetadataStore, root: str) -> LedgerLayout | None:
    """The ledger layout of the cluster at ``root``; None if no cluster is initialised there. Raises ConfigError."""
    found = store.get_many([Znodes(root).layout_path])[0]
    if found is None:
        return None
    layout = LedgerLayout.of_stored(found.value)
    if layout is None:
        known = ", ".join(one.value for one in LedgerLayout)
        raise _other_layout(store, found.value, f"bk_spark knows Apache BookKeeper's ledger managers {known}")
    return layout


def _other_layout(store: MetadataStore, found: bytes, problem: str) -> ConfigError:
    remedy = f"{problem}: choose another root and run 'bk-spark cluster init' there"
    return ConfigError(f"the ledger layout of {store.uri}", found.decode(errors="replace"), remedy)


def _not_initialised(store: MetadataStore) -> ConfigError:
    return ConfigError(
        "the metadata URI", store.uri, f"no cluster is initialised there: run 'bk-spark cluster init --metadata {store.uri}'"
    )


# --- Taking a bookie that is not there any more out of the cluster: its cookie goes, and its directories start no more
#
# Ref: docs/rules.md, protocol rule 48; docs/formats.md, "Cookie".


def remove_cookie(store: MetadataStore, znodes: Znodes, bookie_id: str, version: int | None = None) -> None:
    """Raises ConfigError if there is no such cookie, or the bookie is registered or just starting.

    ``version`` is the cookie's, from before it was made sure that nothing needs the bookie: also if it was started since.
    """
    path = znodes.cookie(bookie_id)
    store.sync(path)  # an absence is acted on: a follower that lags must not invent it
    found = store.get_many([path])[0]
    if found is None:
        raise no_cookie(bookie_id, store)
    address = lookup(store, znodes, bookie_id)
    if address is not None:
        where = f"registered at {address.host}:{address.port}"
        raise ConfigError(f"bookie {bookie_id}", where, "stop it first, or wait for its session to expire")
    try:
        store.delete(path, found.version if version is None else version)
    except (BadVersionError, NoNodeError):
        raise ConfigError(f"bookie {bookie_id}", "started meanwhile", "stop it, and run this again") from None


def no_cookie(bookie_id: str, store: MetadataStore) -> ConfigError:
    """Nothing knows the id: most likely it was mistyped."""
    return ConfigError(
        "the bookie id",
        bookie_id,
        f"there is no cookie of it in {store.uri}: 'bk-spark bookie list' and 'bk-spark ledger show' print bookies' ids",
    )
