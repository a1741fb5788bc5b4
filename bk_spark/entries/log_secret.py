"""The secret of a secured log, as it is stored: the keys of the log's ledgers come from it (digest.py).

It is a value beside the head of its log, made once, in the transaction that secures the log. It never changes, and goes with
the log. It is in no error, log line or text.

Ref: DESIGN.md, "Who may do what"; docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

import json

from bk_spark.errors import CorruptionError, FormatVersionError

FORMAT = 6
"""That of the head of a secured log (log/stored/json_values.py)."""

SECRET_NAME = "secret"
"""Of the znode, below the log's."""

SECRET_BYTES = 32


def encode_secret(secret: bytes) -> bytes:
    assert len(secret) == SECRET_BYTES
    return json.dumps({"format": FORMAT, "secret": secret.hex()}, separators=(",", ":")).encode()


def decode_secret(uid: str, value: bytes) -> bytes:
    """Raises CorruptionError and FormatVersionError, which do not show the value."""
    what = f"the secret of the log with the id {uid}"
    try:
        record = json.loads(value)
        form, secret = record["format"], bytes.fromhex(record["secret"])
    except (ValueError, KeyError, TypeError):
        raise CorruptionError(what, "it cannot be understood") from None
    if type(form) is not int or form < FORMAT or len(secret) != SECRET_BYTES:
        raise CorruptionError(what, "it cannot be understood")
    if form > FORMAT:
        raise FormatVersionError(what, form, FORMAT)
    return secret


def lost_secret(uid: str, where: str) -> CorruptionError:
    """The error where the secret is not there, because of which nobody writes ``where``."""
    problem = f"it is gone, or the log is, so nobody writes {where}: take it from a backup of ZooKeeper"
    return CorruptionError(f"the secret of the log with the id {uid}", problem)
