from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[Status]
    OK: _ClassVar[Status]
    NO_SUCH_LEDGER: _ClassVar[Status]
    NO_SUCH_ENTRY: _ClassVar[Status]
    UNKNOWN: _ClassVar[Status]
    WRONG_BOOKIE: _ClassVar[Status]
    UNAUTHORIZED: _ClassVar[Status]
    BAD_REQUEST: _ClassVar[Status]
    IO_ERROR: _ClassVar[Status]
    DAMAGED: _ClassVar[Status]
    UNSUPPORTED_VERSION: _ClassVar[Status]
    FENCED: _ClassVar[Status]
    READ_ONLY: _ClassVar[Status]
    OTHER_LEDGER: _ClassVar[Status]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    GC_RUN: _ClassVar[Operation]
    GC_SUSPEND: _ClassVar[Operation]
    GC_RESUME: _ClassVar[Operation]
    GC_STATUS: _ClassVar[Operation]
    SCRUB: _ClassVar[Operation]
    BOOKIE_STATUS: _ClassVar[Operation]
    LIMBO_STATUS: _ClassVar[Operation]
    LIMBO_END: _ClassVar[Operation]
    READ_ONLY_ON: _ClassVar[Operation]
    READ_ONLY_OFF: _ClassVar[Operation]
STATUS_UNSPECIFIED: Status
OK: Status
NO_SUCH_LEDGER: Status
NO_SUCH_ENTRY: Status
UNKNOWN: Status
WRONG_BOOKIE: Status
UNAUTHORIZED: Status
BAD_REQUEST: Status
IO_ERROR: Status
DAMAGED: Status
UNSUPPORTED_VERSION: Status
FENCED: Status
READ_ONLY: Status
OTHER_LEDGER: Status
OPERATION_UNSPECIFIED: Operation
GC_RUN: Operation
GC_SUSPEND: Operation
GC_RESUME: Operation
GC_STATUS: Operation
SCRUB: Operation
BOOKIE_STATUS: Operation
LIMBO_STATUS: Operation
LIMBO_END: Operation
READ_ONLY_ON: Operation
READ_ONLY_OFF: Operation

class IdPattern(_message.Message):
    __slots__ = ("ensemble_size", "write_quorum", "slot")
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ensemble_size: int
    write_quorum: int
    slot: int
    def __init__(self, ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class BatchHeader(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id", "pattern", "last_add_confirmed", "length_before", "digest_type", "mixed_lac")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BEFORE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_TYPE_FIELD_NUMBER: _ClassVar[int]
    MIXED_LAC_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    pattern: IdPattern
    last_add_confirmed: int
    length_before: int
    digest_type: int
    mixed_lac: bool
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., pattern: _Optional[_Union[IdPattern, _Mapping]] = ..., last_add_confirmed: _Optional[int] = ..., length_before: _Optional[int] = ..., digest_type: _Optional[int] = ..., mixed_lac: _Optional[bool] = ...) -> None: ...

class AddRequest(_message.Message):
    __slots__ = ("version", "request_id", "bookie_id", "master_key", "header", "body_crc32c", "body", "recovery", "deferred_sync")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_CRC32C_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_SYNC_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: int
    bookie_id: str
    master_key: bytes
    header: BatchHeader
    body_crc32c: int
    body: bytes
    recovery: bool
    deferred_sync: bool
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[int] = ..., bookie_id: _Optional[str] = ..., master_key: _Optional[bytes] = ..., header: _Optional[_Union[BatchHeader, _Mapping]] = ..., body_crc32c: _Optional[int] = ..., body: _Optional[bytes] = ..., recovery: _Optional[bool] = ..., deferred_sync: _Optional[bool] = ...) -> None: ...

class AddReply(_message.Message):
    __slots__ = ("request_id", "status", "detail", "boot")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    status: Status
    detail: str
    boot: int
    def __init__(self, request_id: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ..., detail: _Optional[str] = ..., boot: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("version", "bookie_id", "ledger_id", "master_key", "first_entry_id", "last_entry_id", "pattern", "maximum_bytes", "fence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    ledger_id: int
    master_key: bytes
    first_entry_id: int
    last_entry_id: int
    pattern: IdPattern
    maximum_bytes: int
    fence: bool
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., pattern: _Optional[_Union[IdPattern, _Mapping]] = ..., maximum_bytes: _Optional[int] = ..., fence: _Optional[bool] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("status", "header", "body_crc32c", "body", "entry_id", "detail")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_CRC32C_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    status: Status
    header: BatchHeader
    body_crc32c: int
    body: bytes
    entry_id: int
    detail: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., header: _Optional[_Union[BatchHeader, _Mapping]] = ..., body_crc32c: _Optional[int] = ..., body: _Optional[bytes] = ..., entry_id: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class ReadLastAddConfirmedRequest(_message.Message):
    __slots__ = ("version", "bookie_id", "ledger_id", "master_key", "fence", "beyond", "wait_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    ledger_id: int
    master_key: bytes
    fence: bool
    beyond: int
    wait_ms: int
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., fence: _Optional[bool] = ..., beyond: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ReadLastAddConfirmedReply(_message.Message):
    __slots__ = ("status", "last_add_confirmed", "detail", "fenced")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    last_add_confirmed: int
    detail: str
    fenced: bool
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., last_add_confirmed: _Optional[int] = ..., detail: _Optional[str] = ..., fenced: _Optional[bool] = ...) -> None: ...

class StoreLastAddConfirmedRequest(_message.Message):
    __slots__ = ("version", "bookie_id", "ledger_id", "master_key", "last_add_confirmed", "proof")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    ledger_id: int
    master_key: bytes
    last_add_confirmed: int
    proof: bytes
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., last_add_confirmed: _Optional[int] = ..., proof: _Optional[bytes] = ...) -> None: ...

class StoreLastAddConfirmedReply(_message.Message):
    __slots__ = ("status", "detail")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    status: Status
    detail: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class ForceRequest(_message.Message):
    __slots__ = ("version", "bookie_id", "ledger_id", "master_key")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    ledger_id: int
    master_key: bytes
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ..., ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ...) -> None: ...

class ForceReply(_message.Message):
    __slots__ = ("status", "detail", "boot")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    status: Status
    detail: str
    boot: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., detail: _Optional[str] = ..., boot: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("version", "bookie_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("status", "bookie_id", "free_bytes", "total_bytes", "program_version", "directories")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    status: Status
    bookie_id: str
    free_bytes: int
    total_bytes: int
    program_version: str
    directories: _containers.RepeatedCompositeFieldContainer[Directory]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., bookie_id: _Optional[str] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., program_version: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ...) -> None: ...

class Directory(_message.Message):
    __slots__ = ("path", "uses", "file_system", "free_bytes", "total_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    FILE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    uses: str
    file_system: str
    free_bytes: int
    total_bytes: int
    def __init__(self, path: _Optional[str] = ..., uses: _Optional[str] = ..., file_system: _Optional[str] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class AdministerRequest(_message.Message):
    __slots__ = ("version", "bookie_id", "operation", "ledger_ids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    bookie_id: str
    operation: Operation
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., bookie_id: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class AdministerReply(_message.Message):
    __slots__ = ("status", "detail", "figures", "ledgers")
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LedgersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    detail: str
    figures: _containers.ScalarMap[str, int]
    ledgers: _containers.ScalarMap[int, str]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., detail: _Optional[str] = ..., figures: _Optional[_Mapping[str, int]] = ..., ledgers: _Optional[_Mapping[int, str]] = ...) -> None: ...
