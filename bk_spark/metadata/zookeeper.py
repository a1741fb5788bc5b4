"""The metadata store on ZooKeeper: ``store.MetadataStore`` implemented with kazoo.

The outcome of an operation:

- An answer or a refusal (``StoreError``) is certain.
- After ``MetadataUnavailableError`` the outcome is unknown. A change may have happened, or even happen a little later. It is
  never repeated here: a repeated create or compare-and-set would be refused because of its own first copy. The caller reads
  again and compares; a session's reads come after its own earlier changes.

Reads are repeated while the session can still be alive, so callers do not notice a reconnection.

Threads: kazoo runs three for each store (connection, completions, callbacks), from ``connect`` to ``close``. In a forked
process none of them runs, and every call raises ConfigError.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper Sessions" and "Consistency Guarantees".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from bk_spark.calls.forks import check_process, used_here
from bk_spark.calls.off_main_thread import off_main_thread, owned_result
from bk_spark.config import ClientConfig
from bk_spark.errors import ConfigError, MetadataAccessError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetValue,
    StoreChange,
    StoreError,
    TransactionFailedError,
    Version,
    Versioned,
    check_sizes,
)
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper_auth import (
    EVERYWHERE,
    OPEN,
    REFUSED,
    DirectReader,
    SessionSecurity,
    access_refused,
    hide_requests,
    is_hidden,
    reading,
    shared_with,
    warn_of_open_root,
)
from bk_spark.metadata.zookeeper_obstacles import Obstacles, first_tls_problem
from bk_spark.metadata.zookeeper_sasl import use_sasl
from bk_spark.metadata.zookeeper_session import ConnectionState, ReadMany, SessionState, Watch, ZooKeeperSockets
from bk_spark.tls.files import TlsFiles

T = TypeVar("T")

_WINDOW = 128
"""Concurrent requests of one call. A few tens hide the round trip; more than some 270 gain nothing, because that is how many
wake-ups fit into the socket pair through which kazoo wakes its thread."""

_TOGETHER = 32
"""Values of one request. Each has 512 KiB at most: ZooKeeper makes the answer as a whole, of 16 MiB at most."""

_ACL_TRIES = 100
"""Each further try means that somebody else changed the same access control meanwhile."""

_CLOSE_S = 5.0
"""How long ``close`` waits for the server's answer before it cuts the connection; the session then expires by itself."""

_LOOK_S = 0.1
"""While the first connection is made, as often the names of its hosts are asked about."""

_RECONNECT = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0)
"""Pauses between attempts: short at first, so that a restarted server is found at once, then one second."""

_REFUSALS: dict[type, type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
}

_NOT_THE_REASON = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""The errors of those operations in a refused transaction that did not cause the refusal."""


class _UnknownRequestError(Exception):
    """The server does not know a request."""


logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # kazoo warns once per attempt; users get one MetadataUnavailableError instead
logger.addFilter(hide_requests)


def connect(
    uri: str,
    *,
    connect_timeout_s: float,
    session_timeout_s: float,
    auth: str = "",
    tls: TlsFiles | None = None,
    advice: Callable[[], str] | None = None,
) -> ZooKeeperStore:
    """Open a session. Raises ConfigError, and MetadataUnavailableError after ``connect_timeout_s`` without one.

    The main thread has all of it done by another one, as all that waits for ZooKeeper: an interrupt leaves no session behind,
    and no lock of kazoo's.

    With ``auth`` this session and its successors are authenticated, and what they create belongs to whom the root belongs to.
    Raises MetadataAccessError if that identity may not read the root. A URI with ``?tls=true`` needs ``tls``.

    ``advice`` is asked for what its errors advise where the user did not start ZooKeeper, and so cannot look after it.
    """
    hosts, root = parse_uri(uri)
    security = SessionSecurity.of(uri, auth, tls)

    def opened() -> ZooKeeperStore:
        store = ZooKeeperStore(uri, hosts, session_timeout_s, security, advice)
        store.open(connect_timeout_s)
        if auth:
            store.follow_access(root)
        return store

    return owned_result(opened, ZooKeeperStore.close)


def connect_with(uri: str, config: ClientConfig, advice: Callable[[], str] | None = None) -> ZooKeeperStore:
    """``connect`` as the settings say."""
    return connect(
        uri,
        connect_timeout_s=config.connect_timeout_s,
        session_timeout_s=config.session_timeout_s,
        auth=config.zookeeper_auth,
        tls=TlsFiles.of(config),
        advice=advice,
    )


class ZooKeeperStore:
    """One ZooKeeper session, made by ``connect``. Callbacks run one after the other on one thread, and may use the store."""

    def __init__(
        self,
        uri: str,
        hosts: str,
        session_timeout_s: float,
        security: SessionSecurity = OPEN,
        advice: Callable[[], str] | None = None,
    ) -> None:
        self._uri = uri
        self._advice = advice
        self._hosts = tuple(hosts.split(","))
        self._security = security
        self._timeout_s = session_timeout_s
        self._handler = ZooKeeperSockets(security.contexts)
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            handler=self._handler,
            connection_retry=_RECONNECT.copy(),
            logger=logger,
            **security.kazoo_options(),
        )
        use_sasl(self._client)
        self._handler.is_connected = lambda: bool(self._client.connected)
        self._client.add_listener(self._on_state)
        self._watches: dict[Watch, None] = {}
        """In the order in which they were set. Changed in place, because another thread may add one at the same time."""
        self._new_session: list[Callable[[], None]] = []
        self._session_lost = False
        self._session_began_s: float | None = None
        self._connected_at_s = 0.0
        self._auth_failed = False
        self._closed = False
        self._reader: DirectReader | None = None
        self._reads_many = True
        """Whether the server reads several values in one request, as far as is known: since ZooKeeper 3.6."""
        self.session = SessionState(session_timeout_s, changed_s=time.monotonic())
        """Replaced as a whole, by one thread. Any thread may read it."""

    def open(self, timeout_s: float) -> None:
        """Start the session. Called by ``connect``. Raises ConfigError in a forked process, and MetadataUnavailableError.

        kazoo would try hosts without an address, or with a certificate that is no good, again and again: if that holds of all,
        it is said at once. A server that does not know the identity's scheme is a connection, which each call finds refused;
        it may have come and gone between two looks.
        """
        used_here()
        began_s = time.monotonic()
        self._handler.deadline = began_s + timeout_s
        connected = self._client.start_async()
        obstacles = Obstacles(self._hosts, self._security, self._handler.spawn)
        while not connected.wait(min(_LOOK_S, max(self._handler.deadline - time.monotonic(), 0.0))) and not self._auth_failed:
            now_s = time.monotonic()
            if obstacles.are_certain(now_s - began_s) or now_s >= self._handler.deadline:
                self._handler.cut()
                self._stop()
                raise self._unavailable(obstacles.text or f"no connection within {timeout_s:g} s", obstacles.tls_problem)
        self._handler.deadline = None

    def follow_access(self, root: str) -> None:
        """Give what is made from now on the access control of the root, as it is and as it becomes.

        Whoever changes the root's access control writes its value too, because ZooKeeper tells nobody of the former.
        If this session may not read the root, it may be one that reads single logs directly: it makes nothing. Any other one is
        closed, and MetadataAccessError raised.
        """

        def adopt(on_event: Callable[[WatchedEvent], None]) -> None:
            if self._read(root, lambda: self._client.exists_async(root, watch=on_event)) is None:
                return
            with suppress(NoNodeError):
                acl, _ = self._read(root, lambda: self._client.get_acls_async(root))
                if not is_hidden(acl):
                    self._client.default_acl = acl

        watch = Watch(adopt, lambda: None)
        try:
            self._watch(watch)
        except BaseException as problem:
            if isinstance(problem, MetadataAccessError) and self._reads_directly(root):
                watch.end()
                return
            self.close()
            raise
        warn_of_open_root(self._uri, self._client.default_acl)

    def _reads_directly(self, root: str) -> bool:
        """Whether the session, which may not read the root, is one that reads single logs."""
        znodes = Znodes(root)
        try:
            self._read(znodes.layout_path, lambda: self._client.get_async(znodes.layout_path))
        except (MetadataAccessError, MetadataUnavailableError, NoNodeError):
            return False
        self._reader = DirectReader(self._security.identity(), znodes)
        return True

    @property
    def uri(self) -> str:
        return self._uri

    def connection(self) -> ConnectionState:
        """Where the session stands. Asks nobody, and never waits."""
        now_s = time.monotonic()
        server = self._handler.peer() if self._client.connected else ""
        number, _password = self._client.client_id or (0, b"")
        return ConnectionState(
            self._hosts,
            server,
            hex(number % 2**64) if number else "",  # kazoo reads it with a sign
            None if self._session_began_s is None else now_s - self._session_began_s,
            now_s - self._connected_at_s if server else None,
        )

    def get(self, path: str) -> Versioned:
        found = _versioned(self._read(path, lambda: self._client.get_async(path)))
        if self._reader is not None:
            self._reader.saw(path, found.value)
        return found

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        answers: list[Any] = []
        for begin in range(0, len(paths), _WINDOW):
            answers += self._values(paths[begin : begin + _WINDOW])
        found = [None if answer is None else _versioned(answer) for answer in answers]
        if self._reader is not None:
            self._reader.saw_many(paths, found)
        return found

    @property
    def own_acl(self) -> list[ACL] | None:
        """The access control for the session's identity alone; None without an identity."""
        return self._security.own_acl

    def acls(self, paths: Sequence[str]) -> list[list[ACL] | None]:
        """The access control of each path; None for a missing one."""
        answers = self._side_by_side(paths, self._client.get_acls_async)
        return [None if answer is None else list(answer[0]) for answer in answers]

    def set_acls(self, paths: Sequence[str], acl: Sequence[ACL]) -> int:
        """Give the paths an access control. Returns how many there were. Raises ConfigError if it names nobody known."""
        return self._set_acls(dict.fromkeys(paths, (acl, -1)))

    def change_acls(self, paths: Sequence[str], change: Callable[[Sequence[ACL]], Sequence[ACL]]) -> int:
        """Replace the access control of each path by what ``change`` makes of it, where that is another one.

        One that somebody else replaces meanwhile is read again. Returns how many were replaced. Raises as ``set_acls``, and
        MetadataConflictError.
        """
        replaced: set[str] = set()
        for _ in range(_ACL_TRIES):
            found = zip(paths, self._side_by_side(paths, self._client.get_acls_async), strict=True)
            wanted = {path: (change(answer[0]), answer) for path, answer in found if answer is not None}
            due = {path: (acl, old[1].aversion) for path, (acl, old) in wanted.items() if set(acl) != set(old[0])}
            replaced |= due.keys()
            with suppress(BadVersionError):
                self._set_acls(due)
                return len(replaced)
        raise MetadataConflictError(f"the access control of {paths[0]}", f"{_ACL_TRIES} others changed it meanwhile: try again")

    def _set_acls(self, wanted: Mapping[str, tuple[Sequence[ACL], int]]) -> int:
        """Path → access control, and the version at which it is set, -1 for any. Returns how many of them there were."""
        self._check_changes(*wanted)
        try:
            answers = self._side_by_side(list(wanted), lambda path: self._client.set_acls_async(path, *wanted[path]))
        except MetadataAccessError as refused:
            if isinstance(refused.__cause__, kazoo_errors.InvalidACLError):
                remedy = "ZooKeeper knows no such identity: name one whose authentication is set up there"
                named = {f"{one.id.scheme}:{one.id.id}": None for acl, _ in wanted.values() for one in acl if one.id.id}
                raise ConfigError("the access control", ", ".join(named), remedy) from None
            raise
        return sum(answer is not None for answer in answers)

    def readers(self, path: str) -> tuple[str, ...]:
        return reading(self.acls([path])[0] or [])

    def share(self, paths: Sequence[str], readers: Sequence[str]) -> int:
        return self.change_acls(paths, lambda _: shared_with(self._members, readers))

    def change_readers(self, path: str, change: Callable[[tuple[str, ...]], Sequence[str]]) -> tuple[str, ...]:
        """Replace the readers of ``path`` by ``change(readers)``, also if it gives the same ones. Returns the new ones.

        If somebody else replaces them after they were read, ``change`` is called again with what they left. Raises NoNodeError,
        MetadataConflictError.
        """
        for _ in range(_ACL_TRIES):
            acl, stat = self._read(path, lambda: self._client.get_acls_async(path))
            readers = tuple(change(reading(acl)))
            wanted, version = shared_with(self._members, readers), stat.aversion
            with suppress(BadVersionError):
                self._once(path, lambda: self._client.set_acls_async(path, wanted, version))  # noqa: B023
                return readers
        raise MetadataConflictError(f"the access control of {path}", f"{_ACL_TRIES} others changed it meanwhile: try again")

    @property
    def _members(self) -> Sequence[ACL]:
        found: Sequence[ACL] = self._client.default_acl or OPEN_ACL_UNSAFE
        return found

    def _acl(self, readers: Sequence[str]) -> list[ACL] | None:
        """The access control of something new; None for that of the members alone."""
        return shared_with(self._members, readers) if readers else None

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        make_parents: bool = False,
        readers: Sequence[str] = (),
    ) -> None:
        check_sizes([Create(path, value)])
        self._check_changes(path)

        def create() -> Any:
            return self._client.create_async(path, value, acl=self._acl(readers), ephemeral=ephemeral)

        try:
            self._once(path, create)
        except NoNodeError:
            if not make_parents:
                raise
            self.ensure_path(path.rsplit("/", 1)[0])
            self._once(path, create)

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        check_sizes([Create(prefix, value)])
        self._check_changes(prefix)
        return str(self._once(prefix, lambda: self._client.create_async(prefix, value, ephemeral=ephemeral, sequence=True)))

    def set(self, path: str, value: bytes, version: int) -> int:
        check_sizes([SetValue(path, value, version)])
        self._check_changes(path)
        return int(self._once(path, lambda: self._client.set_async(path, value, _exactly(path, version))).version)

    def delete(self, path: str, version: Version) -> None:
        self._check_changes(path)
        self._once(path, lambda: self._client.delete_async(path, _exactly(path, version)))

    def children(self, path: str) -> list[str]:
        return sorted(self._read(path, lambda: self._client.get_children_async(path)))

    def ensure_path(self, path: str) -> None:
        self._check_changes(path)
        self._once(path, lambda: self._client.ensure_path_async(path))

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        if not changes:
            return
        check_sizes(changes)
        self._check_changes(changes[0].path)
        request = self._client.transaction()
        for index, change in enumerate(changes):
            try:
                self._add_to(request, change)
            except BadVersionError as reason:
                raise TransactionFailedError(index, reason) from None
        self._check_results(changes, self._once(changes[0].path, request.commit_async))

    def _add_to(self, request: Any, change: StoreChange) -> None:
        if isinstance(change, Create):
            request.create(change.path, change.value, acl=self._acl(change.readers))
        elif isinstance(change, SetValue):
            request.set_data(change.path, change.value, _exactly(change.path, change.version))
        elif isinstance(change, Delete):
            request.delete(change.path, _exactly(change.path, change.version))
        elif isinstance(change, Check):
            request.check(change.path, _exactly(change.path, change.version))

    def _check_changes(self, *paths: str) -> None:
        """Raise MetadataAccessError if this session may change nothing: it is refused before ZooKeeper is asked."""
        if self._reader is not None:
            raise self._reader.may_not_change(*paths)

    def sync(self, path: str) -> None:
        self._read(path, lambda: self._client.sync_async(path))

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        """See MetadataStore. Each lost connection causes one call too, because something may have changed meanwhile."""
        self._watch(Watch(lambda on_event: self._watch_names(path, on_event), on_change))

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """See MetadataStore. Each lost connection causes one call too, because something may have changed meanwhile."""
        watch = self._watch(Watch(lambda on_event: self._watch_value(path, on_event), on_change))

        def end() -> None:
            watch.end()
            self._watches.pop(watch, None)

        return end

    def on_new_session(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when a new session has replaced an expired one, whose ephemeral paths are gone.

        If it raises MetadataUnavailableError it is called again after the next reconnection.
        """
        self._new_session.append(callback)

    def close(self) -> None:
        """End the session and its threads. Do not call it from a callback: it waits for the callbacks' thread."""
        off_main_thread(self._close)

    def _close(self) -> None:
        if self._closed:
            return
        timeout = threading.Timer(_CLOSE_S, self._handler.cut)
        timeout.daemon = True
        timeout.start()
        self._stop()
        timeout.cancel()
        timeout.join()

    def __enter__(self) -> ZooKeeperStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch_names(self, path: str, on_event: Callable[[WatchedEvent], None]) -> None:
        """Call ``on_event`` once, when the names below ``path`` change, or when a missing ``path`` is created."""
        while True:
            try:
                self._read(path, lambda: self._client.get_children_async(path, watch=on_event))
            except NoNodeError:
                if self._read(path, lambda: self._client.exists_async(path, watch=on_event)) is None:
                    return
            else:
                return

    def _watch(self, watch: Watch) -> Watch:
        watch.arm()
        self._watches[watch] = None
        return watch

    def _watch_value(self, path: str, on_event: Callable[[WatchedEvent], None]) -> None:
        self._read(path, lambda: self._client.exists_async(path, watch=on_event))

    def _stop(self) -> None:
        self._closed = True
        self._client.stop()
        self._client.close()

    def _on_state(self, state: str) -> None:
        # Runs on kazoo's connection thread, which must not wait: the callbacks' thread does the work.
        lost = self.session.lost + (state == KazooState.LOST)
        is_connected = state == KazooState.CONNECTED
        self.session = replace(self.session, is_connected=is_connected, lost=lost, changed_s=time.monotonic())
        if state == KazooState.LOST:
            self._session_lost = True
            # Only visible at this moment: kazoo then gives up and reports that it is closed.
            self._auth_failed = self._client.client_state == KeeperState.AUTH_FAILED
        elif state == KazooState.CONNECTED:
            self._connected_at_s = time.monotonic()
            if self._session_lost or self._session_began_s is None:
                self._session_began_s = self._connected_at_s
            self._handler.dispatch_callback(Callback("watch", self._after_connection, ()))

    def _after_connection(self) -> None:
        if self._session_lost:
            self._session_lost = False
            for callback in list(self._new_session):
                self._call(callback, is_new_session=True)
        for watch in list(self._watches):
            self._call(watch.refresh)

    def _call(self, callback: Callable[[], None], *, is_new_session: bool = False) -> None:
        """Call one of several callbacks. Its failure must not stop the others."""
        try:
            callback()
        except Exception as problem:
            self._session_lost |= is_new_session and isinstance(problem, MetadataUnavailableError)
            logger.exception("what is told of a new connection or session to %s failed", self._uri)

    def _side_by_side(self, paths: Sequence[str], start: Callable[[str], Any]) -> list[Any]:
        """The answer for each path, None where it is missing. What ``start`` asks for may happen more than once."""
        found: list[Any] = []
        for begin in range(0, len(paths), _WINDOW):
            found += self._window(paths[begin : begin + _WINDOW], start)
        return found

    def _values(self, paths: Sequence[str]) -> list[Any]:
        """As ``_window``, in as few requests as the server lets do with."""
        if len(paths) < 2 or not self._reads_many:
            return self._window(paths, self._client.get_async)
        parts = [paths[begin : begin + _TOGETHER] for begin in range(0, len(paths), _TOGETHER)]

        def attempt() -> list[Any]:
            sent = [self._read_many(part) for part in parts]
            return [found for part, pending in zip(parts, sent, strict=True) for found in self._found_many(part, pending)]

        try:
            return self._repeated(attempt)
        except _UnknownRequestError:
            self._reads_many = False
            return self._window(paths, self._client.get_async)

    def _read_many(self, paths: Sequence[str]) -> Any:
        pending = self._handler.async_result()
        self._client._call(ReadMany(paths), pending)
        return pending

    def _found_many(self, paths: Sequence[str], pending: Any) -> list[Any]:
        try:
            answers = self._result(paths[0], pending)
        except MetadataUnavailableError as problem:
            if isinstance(problem.__cause__, kazoo_errors.UnimplementedError):
                raise _UnknownRequestError from problem
            raise
        return [self._value(path, answer) for path, answer in zip(paths, answers, strict=True)]

    def _value(self, path: str, answer: Any) -> Any:
        """One of several answers; None for a missing path."""
        if not isinstance(answer, kazoo_errors.KazooException):
            return answer
        if isinstance(answer, kazoo_errors.NoNodeError):
            return None
        raise self._translated(path, answer) from answer

    def _window(self, paths: Sequence[str], start: Callable[[str], Any]) -> list[Any]:
        def attempt() -> list[Any]:
            sent = [start(path) for path in paths]  # all are sent before the first answer is awaited
            return [self._found(path, pending) for path, pending in zip(paths, sent, strict=True)]

        return self._repeated(attempt)

    def _found(self, path: str, pending: Any) -> Any:
        try:
            return self._result(path, pending)
        except NoNodeError:
            return None

    def _read(self, path: str, start: Callable[[], Any]) -> Any:
        return self._repeated(lambda: self._once(path, start))

    def _repeated(self, attempt: Callable[[], T]) -> T:
        return off_main_thread(lambda: self._repeat(attempt))

    def _repeat(self, attempt: Callable[[], T]) -> T:
        # Only as long as a session lives without contact: afterwards its watches and ephemeral paths are gone too.
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._await_connection(deadline)
                return attempt()
            except MetadataUnavailableError:
                if time.monotonic() >= deadline or self._closed:
                    raise

    def _once(self, path: str, start: Callable[[], Any]) -> Any:
        def make() -> Any:
            self._await_connection(time.monotonic() + self._timeout_s)
            return self._result(path, start())

        return off_main_thread(make)

    def _await_connection(self, deadline: float) -> None:
        # Without a connection kazoo would queue a request, and a change could happen long after its caller gave up.
        check_process()
        while not self._client.connected:
            if self._auth_failed:
                raise access_refused(self._uri, EVERYWHERE, has_auth=True)
            if self._closed:
                raise self._unavailable("this session is closed")
            if time.monotonic() >= deadline:
                problem = first_tls_problem(self._hosts, self._security) if self._security.contexts else ""
                raise self._unavailable(f"no connection for {self._timeout_s:g} s", problem)
            time.sleep(0.01)

    def _result(self, path: str, pending: Any) -> Any:
        try:
            return pending.get(timeout=self._timeout_s)
        except KazooTimeoutError:
            raise self._unavailable(f"no answer for {self._timeout_s:g} s") from None
        except kazoo_errors.KazooException as error:
            raise self._translated(path, error) from error

    def _translated(self, path: str, error: kazoo_errors.KazooException) -> Exception:
        if isinstance(error, REFUSED):
            # An identity that ZooKeeper does not know is refused before any request: the path that met it says nothing.
            refused_at = EVERYWHERE if isinstance(error, kazoo_errors.AuthFailedError) else path
            if self._reader is not None:
                return self._reader.may_not_read(refused_at)
            return access_refused(self._uri, refused_at, has_auth=bool(self._security.auth))
        refusal = _REFUSALS.get(type(error))
        return refusal(path) if refusal else self._unavailable(f"{type(error).__name__} at {path}")

    def _unavailable(self, problem: str, advice: str = "") -> MetadataUnavailableError:
        if advice:
            return MetadataUnavailableError(self._uri, problem, advice)
        if self._advice is None:
            return MetadataUnavailableError(self._uri, problem)
        return MetadataUnavailableError(self._uri, problem, self._advice())

    def _check_results(self, changes: Sequence[StoreChange], results: Sequence[Any]) -> None:
        for index, (change, result) in enumerate(zip(changes, results, strict=True)):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_REASON):
                reason = self._translated(change.path, result)
                raise TransactionFailedError(index, reason) if isinstance(reason, StoreError) else reason


def _exactly(path: str, version: Version) -> int:
    # ZooKeeper takes -1 for "any version", so it must not result from arithmetic.
    if version is ANY_VERSION:
        return -1
    if version < 0:
        raise BadVersionError(path)
    return version


def _versioned(answer: Any) -> Versioned:
    value, stat = answer
    # ZooKeeper numbers sequential children by the creations so far. It tells them only in cversion, creations and deletions,
    # which has 32 bits and is negative from 2**30 creations on.
    creations = (stat.cversion + stat.numChildren) % 2**32 // 2
    return Versioned(value or b"", stat.version, stat.mtime, stat.numChildren, creations)
