"""The secret of a secured log, as it is stored: the keys of the log's ledgers come from it (digest.py).

It is a value beside the head of its log, made once, in the transaction that secures the log. The secret itself never changes,
and goes with the log. It is in no error, log line or text. Beside it are the log's direct readers, because whoever creates a
ledger reads this value anyway: a creation checks its version, so that no ledger comes into being for readers of before.

Ref: DESIGN.md, "Who may do what"; docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from bk_spark.errors import CorruptionError, FormatVersionError

FORMAT = 6
"""That of the head of a secured log (log/stored/json_values.py)."""

FORMAT_OF_READERS = 7
"""That of one which identities read directly."""

SECRET_NAME = "secret"
"""Of the znode, below the log's."""

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class LogSecret:
    """What is stored there."""

    secret: bytes = field(repr=False)
    readers: tuple[str, ...] = ()
    """Identities that read the log directly: the metadata of its ledgers names them in its access control."""
    version: int = field(default=0, compare=False)
    """Of the znode, not stored: whoever creates a ledger checks that it still has that version."""


def encode_secret(secret: bytes, readers: Sequence[str] = ()) -> bytes:
    assert len(secret) == SECRET_BYTES
    record: dict[str, object] = {"format": FORMAT_OF_READERS if readers else FORMAT, "secret": secret.hex()}
    if readers:
        record["readers"] = list(readers)
    return json.dumps(record, separators=(",", ":")).encode()


def decode_secret(uid: str, value: bytes, version: int = 0) -> LogSecret:
    """Raises CorruptionError and FormatVersionError, which do not show the value."""
    what = f"the secret of the log with the id {uid}"
    try:
        record = json.loads(value)
        form, secret = record["format"], bytes.fromhex(record["secret"])
        readers = tuple(record.get("readers", ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptionError(what, "it cannot be understood") from None
    is_text = all(isinstance(one, str) for one in readers)
    if type(form) is not int or form < FORMAT or len(secret) != SECRET_BYTES or not is_text:
        raise CorruptionError(what, "it cannot be understood")
    if form > FORMAT_OF_READERS:
        raise FormatVersionError(what, form, FORMAT_OF_READERS)
    return LogSecret(secret, readers, version)


def lost_secret(uid: str, where: str) -> CorruptionError:
    """The error where the secret is not there, because of which nobody writes ``where``."""
    problem = f"it is gone, or the log is, so nobody writes {where}: take it from a backup of ZooKeeper"
    return CorruptionError(f"the secret of the log with the id {uid}", problem)
