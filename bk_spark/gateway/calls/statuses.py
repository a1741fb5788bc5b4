"""Which status of gRPC, and which sentence, a caller gets for an error.

A caller learns what it can act on. Addresses of bookies and of the metadata store stay in the gateway's own log.
"""

from __future__ import annotations

import logging
from typing import Final

from grpc import StatusCode

from bk_spark import errors
from bk_spark.errors import BookKeeperError
from bk_spark.gateway.calls.unexpected_errors import UnexpectedErrors

MAX_SENTENCE: Final = 2_000
"""Characters: a status travels in headers, of which clients take 8 KiB."""

OWN: Final[dict[type[BookKeeperError], StatusCode]] = {
    errors.UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    errors.AccessRefusedError: StatusCode.PERMISSION_DENIED,
    errors.GatewayBusyError: StatusCode.RESOURCE_EXHAUSTED,
    errors.NoSuchLogError: StatusCode.NOT_FOUND,
    errors.ConfigError: StatusCode.INVALID_ARGUMENT,
    errors.SchemaMismatchError: StatusCode.INVALID_ARGUMENT,
    errors.EntryTooLargeError: StatusCode.INVALID_ARGUMENT,
    errors.LogReplacedError: StatusCode.ABORTED,
    errors.LedgerFencedError: StatusCode.ABORTED,
    errors.LedgerClosedError: StatusCode.ABORTED,
    errors.MetadataConflictError: StatusCode.ABORTED,
    errors.JobEndedError: StatusCode.ABORTED,
    errors.DataLossError: StatusCode.DATA_LOSS,
    errors.CorruptionError: StatusCode.DATA_LOSS,
    errors.WrongValueError: StatusCode.DATA_LOSS,
}
"""Errors whose sentence is for the caller, and the status of each and of its kinds."""

UNAVAILABLE: Final = (
    errors.MetadataUnavailableError,
    errors.NotEnoughBookiesError,
    errors.BookieUnavailableError,
    errors.AddQuorumTimeoutError,
    errors.AppendTimeoutError,
    errors.StorageError,
)
"""Errors of the cluster. Their sentences name its machines."""

_NOW = "the cluster cannot do this now ({kind}): try again later; the gateway's log says more"
_FAILED = "the gateway failed at this call ({kind}); its log says more"

logger = logging.getLogger(__name__)


class CallerGoneError(Exception):
    """The caller ended the call, or its connection broke: nobody waits for an answer."""


class CallerSilentError(Exception):
    """The caller sent nothing for so many seconds."""

    def __init__(self, silence_s: float) -> None:
        super().__init__(f"nothing came for {silence_s:g} s (--silence-s): send batches, or end the stream")


def status_of(problem: BaseException, what: str, unexpected: UnexpectedErrors) -> tuple[StatusCode, str]:
    """What the caller is told. ``what`` names the call in this process's log, which gets what the caller does not."""
    kind = type(problem).__name__
    for known, code in OWN.items():
        if isinstance(problem, known) and not isinstance(problem, errors.MetadataAccessError):
            return code, _sentence(str(problem))
    if isinstance(problem, CallerGoneError):
        return StatusCode.CANCELLED, "the caller has gone"
    if isinstance(problem, CallerSilentError):
        return StatusCode.DEADLINE_EXCEEDED, str(problem)
    if isinstance(problem, UNAVAILABLE):
        logger.warning("%s failed: %s", what, problem)
        return StatusCode.UNAVAILABLE, _NOW.format(kind=kind)
    if isinstance(problem, BookKeeperError):
        logger.warning("%s failed: %s", what, problem)
    else:
        unexpected.tell(what, problem)
    return StatusCode.INTERNAL, _FAILED.format(kind=kind)


def _sentence(text: str) -> str:
    """On one line, in characters that a header takes."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SENTENCE else f"{line[:MAX_SENTENCE]}…"
