"""A ledger's metadata: who holds which entries, and where it ends.

Invariants, checked whenever a value is made: CLOSED if and only if there is a last entry id; fragments start at entry
0 and their first ids strictly increase; each ensemble has E distinct bookies. A change is a pure function from one
value to the next, written by compare-and-set.

Ref: the BookKeeper protocol, "Ledger metadata"; Apache BookKeeper's LedgerMetadataFormat, version 3 (docs/formats.md).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from enum import Enum

from google.protobuf.message import DecodeError

from bk_spark.config import DigestType, LedgerOptions
from bk_spark.entry import NO_ENTRY
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat
from bk_spark.quorum import IdPattern, check_quorums, pattern_of_slot

_MAGIC = b"BookieMetadataFormatVersion\t"
_VERSION = 3


class LedgerState(Enum):
    """OPEN → IN_RECOVERY → CLOSED, or OPEN → CLOSED. The numbers are Apache BookKeeper's."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of a ledger that one ensemble holds, up to where the next fragment starts."""

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
    """The last entry, -1 for none; None unless CLOSED."""
    length: int = 0
    """Payload bytes; known once CLOSED."""
    created_ms: int = 0
    creator_token: int = 0
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    """Pairs, ascending by key."""

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        problem = self._problem()
        if problem:
            raise CorruptionError(f"the metadata of ledger {self.ledger_id}", problem)

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def custom(self, key: str) -> bytes | None:
        return dict(self.custom_metadata).get(key)

    def fragment_of(self, entry_id: int) -> Fragment:
        """The fragment that holds ``entry_id``."""
        return next(f for f in reversed(self.fragments) if f.first_entry_id <= entry_id)

    def fragment_ranges(self, last: int) -> list[tuple[Fragment, int, int]]:
        """Each fragment that has entries up to ``last``, with its first and last id, inclusive."""
        ends = [f.first_entry_id - 1 for f in self.fragments[1:]] + [last]
        ranges = [(f, f.first_entry_id, min(end, last)) for f, end in zip(self.fragments, ends, strict=True)]
        return [item for item in ranges if item[1] <= item[2]]

    def slot_pattern(self, slot: int) -> IdPattern:
        """The ids that a slot of any ensemble of this ledger holds."""
        return pattern_of_slot(self.ensemble_size, self.write_quorum, slot)

    def closed_at(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """The same ledger, CLOSED."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_ensemble(self, first_entry_id: int, ensemble: tuple[str, ...]) -> LedgerMetadata:
        """The same ledger with ``ensemble`` from ``first_entry_id`` on, which must not lie before the last fragment.

        A last fragment that starts there holds no confirmed entry: it is replaced.
        """
        kept = self.fragments[:-1] if self.last_fragment.first_entry_id == first_entry_id else self.fragments
        return replace(self, fragments=(*kept, Fragment(first_entry_id, ensemble)))

    def with_custom(self, key: str, value: bytes) -> LedgerMetadata:
        return replace(self, custom_metadata=_pairs({**dict(self.custom_metadata), key: value}))

    def encode(self) -> bytes:
        """The znode's value."""
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
        encoded = message.SerializeToString(deterministic=True)
        return _MAGIC + b"%d\n" % _VERSION + _varint(len(encoded)) + encoded

    @staticmethod
    def decode(ledger_id: int, value: bytes) -> LedgerMetadata:
        """Raises CorruptionError for what is not ledger metadata, FormatVersionError for a newer version."""
        what = f"the metadata of ledger {ledger_id}"
        try:
            message = LedgerMetadataFormat.FromString(_undelimited(what, value))
            return _from_message(ledger_id, message)
        except (DecodeError, ValueError) as problem:
            raise CorruptionError(what, str(problem)) from None

    def _problem(self) -> str | None:
        if self.is_closed != (self.last_entry_id is not None):
            return f"state {self.state.name} with last entry id {self.last_entry_id}"
        if self.last_entry_id is not None and self.last_entry_id < NO_ENTRY:
            return f"last entry id {self.last_entry_id}"
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
    ledger_id: int, options: LedgerOptions, ensemble: tuple[str, ...], *, created_ms: int, creator_token: int
) -> LedgerMetadata:
    """The metadata that a ledger is created with."""
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
    )


def _from_message(ledger_id: int, message: LedgerMetadataFormat) -> LedgerMetadata:
    try:
        digest_type = DigestType(message.digestType)
    except ValueError:
        raise CorruptionError(f"the metadata of ledger {ledger_id}", f"unknown digest type {message.digestType}") from None
    try:
        return LedgerMetadata(
            ledger_id,
            message.ensembleSize,
            message.quorumSize,
            message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
            digest_type,
            message.password,
            tuple(Fragment(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment),
            LedgerState(message.state),
            message.lastEntryId if message.HasField("lastEntryId") else None,
            message.length,
            message.ctime,
            message.cToken,
            _pairs({entry.key: entry.value for entry in message.customMetadata}),
        )
    except CorruptionError:
        raise
    except BookKeeperError as problem:
        raise CorruptionError(f"the metadata of ledger {ledger_id}", str(problem)) from None


def _undelimited(what: str, value: bytes) -> bytes:
    if not value.startswith(_MAGIC):
        raise CorruptionError(what, "it does not start with BookieMetadataFormatVersion")
    digits, _, rest = value[len(_MAGIC) :].partition(b"\n")
    if not digits.isdigit() or len(digits) > 9:
        raise CorruptionError(what, f"its version is {digits[:20]!r}")
    if int(digits) > _VERSION:
        raise FormatVersionError(what, int(digits), _VERSION)
    if int(digits) < _VERSION:
        raise CorruptionError(what, f"its version {int(digits)} is older than {_VERSION}, the only one that bk_spark reads")
    size, start = _read_varint(what, rest)
    if start + size != len(rest):
        raise CorruptionError(what, f"{len(rest) - start} bytes follow where {size} are announced")
    return rest[start:]


def _pairs(custom: dict[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted(custom.items()))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(what: str, data: bytes) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, index + 1
    raise CorruptionError(what, "its length is not a varint")
