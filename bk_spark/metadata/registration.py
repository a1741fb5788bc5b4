"""The root of a cluster in the metadata store, the registrations of its bookies, and the removal of their cookies.

A root is initialised once (``bk-spark cluster init``). A running bookie holds an ephemeral znode under its bookie id; the
znode's value says where the bookie listens. A **bookie id** names one formatting of one set of disks. Its **address** is where
the process that serves those disks listens now, and may change.

Ref: Apache BookKeeper's BookieServiceInfoFormat; docs/formats.md, "Znodes of ledgers and bookies" and "Cookies"; docs/rules.md,
protocol rule 48.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from bk_spark.config import DEFAULT_RACK
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError, State
from bk_spark.host_port import HostPort, parse_host
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.other_roots import not_initialised
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Version,
    Versioned,
    find,
    name_of,
    share_as_now,
)
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.ledger_metadata_pb2 import BookieServiceInfoFormat

PROTOCOL = "bk_spark-grpc"
"""The protocol of the endpoint at which bk_spark's bookies take requests."""

CLEAR_PROTOCOL = "bk_spark-grpc-clear"
"""The protocol of the endpoint of such a bookie for clients without TLS, beside one that speaks it."""

APACHE_PROTOCOL = "bookie-rpc"
"""The protocol of the endpoint at which Apache BookKeeper's bookies take requests."""

TLS_EXTENSION = "tls"
"""The extension of an endpoint that speaks TLS after START_TLS."""

SASL_AUTH = "sasl"
"""How an endpoint says that clients must authenticate by SASL. Apache's bookies say nothing of it."""

HTTP_PROTOCOL = "http"
"""The protocol of the endpoint that serves metrics and health."""

_PROTOCOLS = (PROTOCOL, APACHE_PROTOCOL, HTTP_PROTOCOL, CLEAR_PROTOCOL)

RESTORE = "restore the metadata store, and do not initialise it anew: an empty one would be another cluster"
"""What to do about a metadata store that lacks a cluster which there was."""

RACK_PROPERTY = "rack"
"""The property of a registration that names the bookie's rack."""


@dataclass(frozen=True, slots=True)
class ApachePort:
    """Where one of bk_spark's bookies takes requests of Apache's clients, at its own host."""

    port: int
    has_tls: bool = False
    asks_sasl: bool = False
    """Whether clients must authenticate there by SASL."""


@dataclass(frozen=True, slots=True)
class BookieAddress:
    """Where a bookie listens, and its rack."""

    bookie_id: str
    host: str
    port: int
    rack: str = DEFAULT_RACK
    http: str | None = None
    """``host:port`` of its metrics and health, as ``HostPort`` writes it; None if it has none."""
    protocol: str = PROTOCOL
    """What it speaks there: PROTOCOL or APACHE_PROTOCOL."""
    apache: ApachePort | None = None
    """Where it takes requests of Apache's clients besides; None if it does not."""
    clear_port: int | None = None
    """Where clients without TLS are served at the same host, if ``port`` serves others alone; else None."""

    @property
    def place(self) -> HostPort:
        return HostPort(self.host, self.port)


@dataclass(frozen=True, slots=True)
class RegisteredBookie:
    """A registered bookie. A read-only one serves reads, fences and recovery, and takes no new ledgers."""

    bookie_id: str
    address: BookieAddress
    read_only: bool
    registered_ms: int | None = field(default=None, compare=False)
    """Since when it is registered in this mode, by the store's own clock; None if unknown."""

    @property
    def rack(self) -> str:
        return self.address.rack

    @property
    def is_apache(self) -> bool:
        """Whether it is one of Apache BookKeeper's bookies, or speaks like one."""
        return self.address.protocol == APACHE_PROTOCOL

    @property
    def http(self) -> str | None:
        return self.address.http


def initialise_cluster(store: MetadataStore, znodes: Znodes) -> None:
    """Create the root and the znodes that every cluster has. May be repeated, and run twice at once.

    Raises ConfigError if the root exists with another ledger layout, which cannot change.
    """
    for path in (znodes.id_generator, znodes.read_only, znodes.cookies, znodes.log_names, znodes.log_data):
        store.ensure_path(path)
    with contextlib.suppress(NodeExistsError):
        store.create(znodes.instance_id, str(uuid.uuid4()).encode())
    # The layout is created last: where it exists, everything exists.
    with contextlib.suppress(NodeExistsError):
        store.create(znodes.layout_path, znodes.layout_value)
    check_layout(store, znodes)


def open_root(store: MetadataStore, root: str) -> Znodes:
    """The paths of the cluster at ``root``. Raises ConfigError if none is initialised there, or with an unknown layout."""
    layout = _stored_layout(store, root)
    if layout is None:
        raise not_initialised(store, root)
    return Znodes(root, layout)


def is_initialised(store: MetadataStore, root: str) -> bool:
    """Whether there is a cluster at ``root``. Raises ConfigError if its ledger layout is unknown."""
    return _stored_layout(store, root) is not None


def intended_root(store: MetadataStore, root: str, layout: LedgerLayout | None) -> Znodes:
    """The paths for ``initialise_cluster``. ``layout=None`` means that of an existing cluster, else the default."""
    return Znodes(root, layout or _stored_layout(store, root) or LedgerLayout.HIERARCHICAL)


def check_layout(store: MetadataStore, znodes: Znodes) -> None:
    """Raise ConfigError unless the root is initialised, with the ledger layout of ``znodes``."""
    layout = open_root(store, znodes.root).layout
    if layout is not znodes.layout:
        raise _other_layout(store, layout.stored, f"a cluster keeps its layout, and this is not {znodes.layout.value}")


def instance_id(store: MetadataStore, znodes: Znodes) -> str:
    """The random id that tells this cluster from all others, including one initialised anew at the same root."""
    try:
        return store.get(znodes.instance_id).value.decode()
    except NoNodeError:
        raise not_initialised(store, znodes.root) from None


def sync_same_cluster(store: MetadataStore, znodes: Znodes, expected: str) -> None:
    """Let later reads of this session see everything committed before. Call it before acting on an absence.

    Raises MetadataConflictError if the instance id is not ``expected``: a root that was initialised anew lacks every ledger. So
    does one that is empty.
    """
    store.sync(znodes.root)
    try:
        found = store.get(znodes.instance_id).value.decode()
    except NoNodeError:
        problem = f"it has lost the cluster with instance id {expected}, nothing is concluded from it: {RESTORE}"
        raise MetadataConflictError(f"the metadata store {store.uri}", problem) from None
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
    """Register a bookie for the life of ``store``'s session. May be repeated, also to change ``read_only``.

    The caller holds the lock of the bookie's data directory and already listens at ``address``. So a registration of the
    same id and address is left over from a former session or a dead process, and is replaced. While there is one with another
    address, ``pause`` is called between two looks: it sleeps, and returns False to stop waiting. Then MetadataConflictError is
    raised, with the other address.
    """
    path = znodes.registration(address.bookie_id, read_only=read_only)
    value = _encode(address)
    while not _try_register(store, znodes, path, value):
        other = find(store, path)
        if other is not None and _is_at(address, path, other):
            _remove(store, path, other.version)
        elif other is not None and not pause():
            raise MetadataConflictError(f"the registration of bookie {address.bookie_id}", _held_by(path, other))
    _remove(store, znodes.registration(address.bookie_id, read_only=not read_only), ANY_VERSION)


def withdraw(store: MetadataStore, znodes: Znodes, address: BookieAddress) -> None:
    """Remove the registration of a bookie that stops. A registration with another address stays."""
    for read_only in (False, True):
        path = znodes.registration(address.bookie_id, read_only=read_only)
        found = find(store, path)
        if found is not None and _is_at(address, path, found):
            _remove(store, path, found.version)


def unregister(store: MetadataStore, znodes: Znodes, bookie_id: str) -> None:
    """Remove the registration of a bookie that is known to be dead, without waiting for its session to expire."""
    for read_only in (False, True):
        _remove(store, znodes.registration(bookie_id, read_only=read_only), ANY_VERSION)


def list_bookies(store: MetadataStore, znodes: Znodes) -> list[RegisteredBookie]:
    """The registered bookies, including read-only ones, in the order of their ids. A change of mode hides none."""
    writable, read_only, moved = (
        set(_names(store, znodes, path)) for path in (znodes.available, znodes.read_only, znodes.available)
    )
    modes = {bookie_id: bookie_id in read_only for bookie_id in sorted(writable | read_only | moved)}
    del modes[name_of(znodes.read_only)]
    paths = [znodes.registration(bookie_id, read_only=mode) for bookie_id, mode in modes.items()]
    bookies = []
    for bookie_id, path, found in zip(modes, paths, store.get_many(paths), strict=True):
        bookie = _registered(znodes, bookie_id, path, found) if found is not None else _find(store, znodes, bookie_id)
        if bookie is not None:
            bookies.append(bookie)
    return bookies


def watch_bookies(store: MetadataStore, znodes: Znodes, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` (from any thread, briefly) when a bookie comes, goes or changes its mode, until the store closes.

    It is also called after a lost connection or session, because something may have changed. It does not say what changed.
    """
    for path in (znodes.available, znodes.read_only):
        store.watch_children(path, on_change)


def lookup(store: MetadataStore, znodes: Znodes, bookie_id: str) -> BookieAddress | None:
    """Where a bookie listens; None if it is not registered, which does not mean that it is dead."""
    found = _find(store, znodes, bookie_id)
    return found.address if found is not None else None


def _find(store: MetadataStore, znodes: Znodes, bookie_id: str) -> RegisteredBookie | None:
    """The registration of a bookie. One that changes its mode enters the new one first: one of three looks meets it."""
    paths = [znodes.registration(bookie_id, read_only=mode) for mode in (False, True, False)]
    for path, found in zip(paths, store.get_many(paths), strict=True):
        if found is not None:
            return _registered(znodes, bookie_id, path, found)
    return None


def _registered(znodes: Znodes, bookie_id: str, path: str, found: Versioned) -> RegisteredBookie | None:
    """None for a bookie that takes requests in no way that is known here."""
    address = _decode(bookie_id, path, found.value)
    is_read_only = path == znodes.registration(bookie_id, read_only=True)
    return RegisteredBookie(bookie_id, address, is_read_only, found.modified_ms) if address is not None else None


def _names(store: MetadataStore, znodes: Znodes, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNodeError:
        raise not_initialised(store, znodes.root) from None


def _try_register(store: MetadataStore, znodes: Znodes, path: str, value: bytes) -> bool:
    """Whoever may list the bookies may read the registration, too."""
    readers = store.readers(znodes.available)
    try:
        store.create(path, value, ephemeral=True, readers=readers)
    except NodeExistsError:
        return False
    except NoNodeError:  # a bookie registers once it has found its cluster there
        raise ConfigError("the metadata URI", store.uri, f"it has lost the cluster of this bookie: {RESTORE}") from None
    share_as_now(store, [path], readers, lambda: store.readers(znodes.available))
    return True


def _remove(store: MetadataStore, path: str, version: Version) -> None:
    with contextlib.suppress(NoNodeError, BadVersionError):
        store.delete(path, version)


def _encode(address: BookieAddress) -> bytes:
    endpoints = [_endpoint("bookie", address.host, address.port, PROTOCOL)]
    if address.clear_port is not None:
        endpoints.append(_endpoint("bookie-clear", address.host, address.clear_port, CLEAR_PROTOCOL))
    if address.apache is not None:
        apache = _endpoint("bookie-apache", address.host, address.apache.port, APACHE_PROTOCOL)
        apache.extensions.extend([TLS_EXTENSION] if address.apache.has_tls else [])
        apache.auth.extend([SASL_AUTH] if address.apache.asks_sasl else [])
        endpoints.append(apache)
    if address.http is not None:
        monitored = HostPort.parse(address.http)
        endpoints.append(_endpoint("http", monitored.host, monitored.port, HTTP_PROTOCOL))
    info = BookieServiceInfoFormat(endpoints=endpoints, properties={RACK_PROPERTY: address.rack})
    return info.SerializeToString(deterministic=True)


def _endpoint(name: str, host: str, port: int, protocol: str) -> BookieServiceInfoFormat.Endpoint:
    return BookieServiceInfoFormat.Endpoint(id=name, host=host, port=port, protocol=protocol, auth=[], extensions=[])


def _decode(bookie_id: str, path: str, value: bytes) -> BookieAddress | None:
    """None for a bookie that takes requests in no way that is known here."""
    if not value:
        return _legacy(bookie_id)
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError as problem:
        raise CorruptionError(f"the registration {path}", str(problem)) from problem
    by_protocol = {endpoint.protocol: endpoint for endpoint in reversed(info.endpoints)}
    rack = info.properties.get(RACK_PROPERTY, DEFAULT_RACK)
    known = {name: by_protocol[name] for name in _PROTOCOLS if name in by_protocol}
    places = {name: _place(path, endpoint.host, endpoint.port) for name, endpoint in known.items()}
    if not isinstance(rack, str):  # protobuf 2 returns strings that are not UTF-8 as bytes
        raise CorruptionError(f"the registration {path}", f"it names the rack {rack!r:.100}")
    http, clear = places.pop(HTTP_PROTOCOL, None), places.pop(CLEAR_PROTOCOL, None)
    found = next(iter(places.items()), None)  # ours first: it carries whole batches
    if found is None:
        return None
    other = known.get(APACHE_PROTOCOL) if found[0] == PROTOCOL else None
    apache = None
    if other is not None:
        apache = ApachePort(other.port, TLS_EXTENSION in other.extensions, SASL_AUTH in other.auth)
    monitored = None if http is None else str(http)
    clear_port = None if clear is None else clear.port
    return BookieAddress(bookie_id, found[1].host, found[1].port, rack, monitored, found[0], apache, clear_port)


def _place(path: str, host: object, port: int) -> HostPort:
    """Where an endpoint is. Protobuf 2 returns strings that are not UTF-8 as bytes."""
    try:
        if isinstance(host, str) and 0 < port < 65_536:
            return HostPort(parse_host(host), port)
        raise ValueError
    except ValueError:
        raise CorruptionError(f"the registration {path}", f"it names the host {host!r:.100} and port {port}") from None


def _legacy(bookie_id: str) -> BookieAddress | None:
    """An old bookie of Apache's registers without a value: its id is where it listens."""
    host, _, port = bookie_id.rpartition(":")  # an id has no brackets
    try:
        place = HostPort.parse(f"[{host}]:{port}" if ":" in host else bookie_id)
    except ValueError:
        return None
    return BookieAddress(bookie_id, place.host, place.port, protocol=APACHE_PROTOCOL)


def _is_at(address: BookieAddress, path: str, other: Versioned) -> bool:
    """Whether a registration has this host and port; its rack may have changed."""
    found = _decode(address.bookie_id, path, other.value)
    return found is not None and (found.host, found.port) == (address.host, address.port)


def _held_by(path: str, other: Versioned) -> str:
    address = _decode("", path, other.value)
    where = f"at {address.place}" if address else "of another kind"
    return f"a process {where} holds it: stop that one, or wait for its session to expire"


def _stored_layout(store: MetadataStore, root: str) -> LedgerLayout | None:
    """The ledger layout of the cluster at ``root``; None if no cluster is initialised there. Raises ConfigError."""
    found = find(store, Znodes(root).layout_path)
    if found is None:
        return None
    layout = LedgerLayout.of_stored(found.value)
    if layout is None:
        known = ", ".join(layout.value for layout in LedgerLayout)
        raise _other_layout(store, found.value, f"bk_spark knows Apache BookKeeper's ledger managers {known}")
    return layout


def _other_layout(store: MetadataStore, found: bytes, problem: str) -> ConfigError:
    remedy = f"{problem}: choose another root and run 'bk-spark cluster init' there"
    return ConfigError(f"the ledger layout of {store.uri}", found.decode(errors="replace"), remedy)


def remove_cookie(store: MetadataStore, znodes: Znodes, bookie_id: str, version: int | None = None) -> None:
    """Remove a bookie that is gone for good from the cluster: its directories no longer start without their cookie.

    Give the ``version`` that the cookie had before it was checked that no ledger needs the bookie. Raises ConfigError if there
    is no such cookie, if the bookie is registered, or if it was started since the cookie had ``version``.
    """
    path = znodes.cookie(bookie_id)
    store.sync(path)  # so that the absences below are not those of a lagging follower
    found = find(store, path)
    if found is None:
        raise no_cookie(bookie_id, store)
    address = lookup(store, znodes, bookie_id)
    if address is not None:
        where = State(f"registered at {address.place}")
        raise ConfigError(f"bookie {bookie_id}", where, "stop it first, or wait for its session to expire")
    try:
        store.delete(path, found.version if version is None else version)
    except NoNodeError:  # somebody else removed it right now
        raise no_cookie(bookie_id, store) from None
    except BadVersionError:
        raise ConfigError(
            f"bookie {bookie_id}", State("one that was started meanwhile"), "stop it, and run this again"
        ) from None


def no_cookie(bookie_id: str, store: MetadataStore) -> ConfigError:
    """The error for an id without a cookie; most likely it was mistyped."""
    return ConfigError(
        "the bookie id",
        bookie_id,
        f"there is no cookie of it in {store.uri}: 'bk-spark bookie list' and 'bk-spark ledger show ID' print bookies' ids",
    )
