"""Tokens: how one is made, written, and recognised by what is stored of it. Pure; chance and time are arguments.

::

    bks_<id, 8 bytes>_<secret, 32 bytes>      base64url without padding: 59 characters in all

The id names the token in lists and is no secret. Of the secret only its SHA-256 is stored: nothing in the metadata store lets
anybody call the gateway. A slow hash, as passwords need it, would add nothing: the secret has 256 random bits, which nobody
guesses at any speed, and each call would pay for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bk_spark.errors import ConfigError
from bk_spark.gateway.rights import TOKEN, CallerIdentity

PREFIX: Final = "bks_"
"""So that who finds one in a file, or a scanner for secrets, sees what it is."""
ID_BYTES = 8
SECRET_BYTES = 32

_ID = r"[A-Za-z0-9_-]{11}"
_TOKEN = re.compile(rf"{PREFIX}({_ID})_([A-Za-z0-9_-]{{43}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token as its bearer has it."""

    token_id: str
    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """What the bearer sends. Shown once, to whoever made it."""
        return f"{PREFIX}{self.token_id}_{_encode(self.secret)}"

    @property
    def digest(self) -> bytes:
        """What is stored of the secret."""
        return hashlib.sha256(self.secret).digest()


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What the metadata store has of a token. It never changes: a token is made, and at some time revoked."""

    token_id: str
    name: str
    """Of its identity, ``token:NAME``. No two tokens that live have one name."""
    digest: bytes
    created_ms: int
    ends_ms: int | None
    """When it ends by the clock of each gateway, None for never."""
    made_by: str
    """Who made it, as the command saw it: a note for people, which proves nothing."""

    def __post_init__(self) -> None:
        check_token_name(self.name)
        if not is_token_id(self.token_id) or len(self.digest) != hashlib.sha256().digest_size:
            raise ConfigError("the id or the digest of a token", self.token_id, "it is not of the form that tokens have")

    @property
    def identity(self) -> CallerIdentity:
        """Whom a call with it comes from."""
        return CallerIdentity(TOKEN, self.name, self.token_id)

    def has_ended(self, now_ms: int) -> bool:
        return self.ends_ms is not None and now_ms >= self.ends_ms

    def is_of(self, token: BearerToken) -> bool:
        """Whether the bearer has this token's secret. Takes as long for a wrong one as for the right one."""
        return self.token_id == token.token_id and hmac.compare_digest(self.digest, token.digest)


def new_token(random_bytes: Callable[[int], bytes]) -> BearerToken:
    """``random_bytes``: those of ``secrets``."""
    return BearerToken(_encode(random_bytes(ID_BYTES)), random_bytes(SECRET_BYTES))


def parse_token(text: str) -> BearerToken | None:
    """None for what has not the form of a token. One token has one text: other last characters of the same bits are refused."""
    match = _TOKEN.fullmatch(text)
    if match is None or not is_token_id(match[1]):
        return None
    token = BearerToken(match[1], _decode(match[2]))
    return token if token.text == text else None


def is_token_id(text: str) -> bool:
    """No other text becomes a part of a path."""
    return re.fullmatch(_ID, text) is not None and _encode(_decode(text)) == text


def check_token_name(name: str) -> None:
    """Raises ConfigError for what cannot be the name of a token."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError("token name", name, "write 1 to 64 letters, digits, dots, - and _ of ASCII, the first one no sign")


def _encode(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
