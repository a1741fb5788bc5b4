"""A ledger's metadata: which bookies hold which entries, and where the ledger ends.

Invariants, checked in the constructor: CLOSED if and only if there is a last entry id; fragments start at entry 0 and their
first ids strictly increase; each ensemble has E distinct bookies. A change is a pure function from one value to the next, and
is written by compare-and-set.

Ref: the BookKeeper protocol, "Ledger metadata"; Apache BookKeeper's LedgerMetadataFormat (ledger_metadata_versions.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from enum import Enum

from bk_spark.config import DigestType, LedgerOptions
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import APACHE_KEY_BYTES, master_key, read_password, write_proof
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError
from bk_spark.metadata.ledger_metadata_versions import is_of_keyed, read, written
from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat
from bk_spark.quorum import IdPattern, check_quorums, pattern_of_slot


class LedgerState(Enum):
    """OPEN → IN_RECOVERY → CLOSED, or OPEN → CLOSED. The numbers are Apache BookKeeper's."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


NO_TOKEN = 0
"""The creator's token of metadata that have none."""

APPLICATION_TAG = "application"
"""The custom metadata in which applications on Apache BookKeeper say that a ledger is theirs."""
LOG_TAG = "bk_spark.log"
"""Custom metadata of a ledger: the uid of the only log that may list it."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A range of entries that one ensemble holds: from ``first_entry_id`` to the start of the next fragment."""

    first_entry_id: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """What the metadata store holds of one ledger."""

    ledger_id: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType
    password: bytes = field(repr=False)
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int | None = None
    """The last entry, -1 if there is none; None unless CLOSED."""
    length: int = 0
    """Payload bytes; known once CLOSED."""
    created_ms: int = 0
    creator_token: int = 0
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    """Pairs, ascending by key."""
    is_keyed: bool = False
    """Whether its keys come from the secret of a log. Then ``password`` is what its readers' key comes from."""
    write_proof: bytes = field(default=b"", repr=False, compare=False)
    """Of a keyed ledger, in the memory of those who write to it. It is not stored: client/driver/log_secrets.py derives it."""

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        problem = self._problem()
        if problem:
            raise CorruptionError(f"the metadata of ledger {self.ledger_id}", problem)

    @property
    def master_key(self) -> bytes:
        """What requests show bookies (entries/digest.py). Of a keyed ledger without ``write_proof`` it is the key for reads."""
        return self.write_proof + self.read_key[APACHE_KEY_BYTES:] if self.write_proof else self.read_key

    @property
    def read_key(self) -> bytes:
        """What reads that do not fence show bookies: only for keyed ledgers is it another key than ``master_key``."""
        # Bookies take a negative token for a keyed ledger's. A ledger of Apache's may have one: it goes without.
        return master_key(self.password, self.creator_token if self.is_keyed else max(self.creator_token, NO_TOKEN))

    def is_opened_by(self, password: bytes) -> bool:
        """Whether that is the ledger's password. Who can read the metadata of a keyed ledger needs none."""
        return password == (b"" if self.is_keyed else self.password)

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    @property
    def bookies(self) -> frozenset[str]:
        """All bookies that the ledger names, in any fragment."""
        return frozenset(bookie_id for fragment in self.fragments for bookie_id in fragment.ensemble)

    def is_same_ledger(self, other: LedgerMetadata) -> bool:
        """Not if another creator made the other one: then the id was given out again.

        A token of 0 says nothing: Apache's client drops the token when it writes metadata again.
        """
        tokens = {self.creator_token, other.creator_token}
        return len(tokens) == 1 or NO_TOKEN in tokens

    def custom(self, key: str) -> bytes | None:
        return dict(self.custom_metadata).get(key)

    @property
    def application(self) -> str:
        """Who owns the ledger, such as Apache Pulsar's ``pulsar``; "" if its metadata name nobody."""
        return (self.custom(APPLICATION_TAG) or b"").decode(errors="replace")

    def check_may_change(self, of_application: str = "") -> None:
        """Raise ConfigError if the ledger is owned by another application than this one: its writer relies on it."""
        if self.application not in ("", of_application):
            remedy = f"it belongs to the application '{self.application}': leave it to that, or name the application to take it"
            raise ConfigError("ledger to recover or delete", self.ledger_id, remedy)

    def fragment_of(self, entry_id: int) -> Fragment:
        """The fragment that holds ``entry_id``."""
        return next(f for f in reversed(self.fragments) if f.first_entry_id <= entry_id)

    def fragment_ranges(self, last: int) -> list[tuple[Fragment, int, int]]:
        """Each fragment with entries up to ``last``, and the first and last id of those, inclusive."""
        ends = [f.first_entry_id - 1 for f in self.fragments[1:]] + [last]
        ranges = [(f, f.first_entry_id, min(end, last)) for f, end in zip(self.fragments, ends, strict=True)]
        return [(f, first, end) for f, first, end in ranges if first <= end]

    def slot_pattern(self, slot: int) -> IdPattern:
        """The ids that a slot holds in any ensemble of this ledger."""
        return pattern_of_slot(self.ensemble_size, self.write_quorum, slot)

    def closed_at(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """The same ledger, CLOSED."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_ensemble(self, first_entry_id: int, ensemble: tuple[str, ...]) -> LedgerMetadata:
        """The same ledger with ``ensemble`` from ``first_entry_id`` on, which must not be before the last fragment.

        If the last fragment starts there it holds no confirmed entry, and is replaced.
        """
        kept = self.fragments[:-1] if self.last_fragment.first_entry_id == first_entry_id else self.fragments
        return replace(self, fragments=(*kept, Fragment(first_entry_id, ensemble)))

    def with_custom(self, key: str, value: bytes) -> LedgerMetadata:
        return replace(self, custom_metadata=_pairs({**dict(self.custom_metadata), key: value}))

    def encode(self) -> bytes:
        """The znode's value in the newest format version, whichever version was read."""
        message = LedgerMetadataFormat(
            quorumSize=self.write_quorum,
            ensembleSize=self.ensemble_size,
            length=self.length,
            state=LedgerMetadataFormat.State.Name(self.state.value),
            digestType=LedgerMetadataFormat.DigestType.Name(self.digest_type.value),
            password=self.password,
            ackQuorumSize=self.ack_quorum,
            ctime=self.created_ms,
            cToken=self.creator_token,
        )
        if self.last_entry_id is not None:
            message.lastEntryId = self.last_entry_id
        for fragment in self.fragments:
            message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry_id)
        for key, value in self.custom_metadata:
            message.customMetadata.add(key=key, value=value)
        return written(message, is_keyed=self.is_keyed)

    @staticmethod
    def decode(ledger_id: int, value: bytes) -> LedgerMetadata:
        """Decode a znode's value in any format version.

        Raises CorruptionError if it is not ledger metadata, FormatVersionError for a newer version, ConfigError for one of
        Apache BookKeeper's digest types that bk_spark does not have.
        """
        what = f"the metadata of ledger {ledger_id}"
        return _from_message(ledger_id, what, read(what, value), is_keyed=is_of_keyed(value))

    def _problem(self) -> str | None:
        if self.is_closed != (self.last_entry_id is not None):
            return f"state {self.state.name} with last entry id {self.last_entry_id}"
        if self.last_entry_id is not None and self.last_entry_id < NO_ENTRY:
            return f"last entry id {self.last_entry_id}"
        if self.length < 0:
            return f"length {self.length}"
        if self.is_keyed and self.creator_token >= NO_TOKEN:
            return f"its creator's token is {self.creator_token}, and a keyed ledger's is negative"
        if self.write_proof and read_password(self.write_proof) != self.password:
            return "its key for reads does not follow from its log's secret"
        firsts = [f.first_entry_id for f in self.fragments]
        if not firsts or firsts[0] != 0 or any(a >= b for a, b in itertools.pairwise(firsts)):
            return f"fragments start at {firsts}"
        for fragment in self.fragments:
            if len(set(fragment.ensemble)) != self.ensemble_size or len(fragment.ensemble) != self.ensemble_size:
                return (
                    f"fragment {fragment.first_entry_id} has the ensemble {fragment.ensemble}, not {self.ensemble_size} bookies"
                )
        return None


def new_ledger(
    ledger_id: int,
    options: LedgerOptions,
    ensemble: tuple[str, ...],
    *,
    created_ms: int,
    creator_token: int,
    secret: bytes | None = None,
) -> LedgerMetadata:
    """The metadata of a new ledger: of a keyed one with the secret of its log. ``creator_token`` is above 0."""
    proof = b""
    if secret is not None:
        creator_token = -creator_token
        proof = write_proof(secret, ledger_id, creator_token)
        options = replace(options, password=read_password(proof))
    return LedgerMetadata(
        ledger_id,
        options.ensemble_size,
        options.write_quorum,
        options.ack_quorum,
        options.digest_type,
        options.password,
        (Fragment(0, ensemble),),
        created_ms=created_ms,
        creator_token=creator_token,
        custom_metadata=_pairs(options.custom_metadata),
        is_keyed=secret is not None,
        write_proof=proof,
    )


def _from_message(ledger_id: int, what: str, message: LedgerMetadataFormat, *, is_keyed: bool) -> LedgerMetadata:
    is_closed = message.state == LedgerMetadataFormat.CLOSED
    if not is_closed and message.HasField("lastEntryId") and message.lastEntryId != NO_ENTRY:
        raise CorruptionError(what, f"last entry id {message.lastEntryId} of a ledger that is not CLOSED")
    digest_type = _digest_type(ledger_id, message)
    try:
        return LedgerMetadata(
            ledger_id,
            message.ensembleSize,
            message.quorumSize,
            message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
            digest_type,
            message.password,
            tuple(Fragment(s.firstEntryId, tuple(_text(what, name) for name in s.ensembleMember)) for s in message.segment),
            LedgerState(message.state),
            message.lastEntryId if is_closed and message.HasField("lastEntryId") else None,
            message.length,
            message.ctime,
            message.cToken,
            _pairs({_text(what, entry.key): entry.value for entry in message.customMetadata}),
            is_keyed,
        )
    except CorruptionError:
        raise
    except BookKeeperError as problem:
        raise CorruptionError(what, str(problem)) from None


def _digest_type(ledger_id: int, message: LedgerMetadataFormat) -> DigestType:
    """The stored type, or the default where none is stored (version 1); entries with another one do not verify."""
    if not message.HasField("digestType"):
        return LedgerOptions().digest_type
    return DigestType(message.digestType)


def _text(what: str, value: str | bytes) -> str:
    """A string field. Protobuf 2 returns strings that are not UTF-8 as bytes: they raise CorruptionError."""
    if isinstance(value, bytes):
        raise CorruptionError(what, f"{value[:100]!r} is no UTF-8 text")
    return value


def _pairs(custom: dict[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted(custom.items()))
