"""SASL's mechanism DIGEST-MD5, as a server speaks it: what it asks, and whether an answer shows that a client knows a password.

The password itself is never sent. Each side shows a digest of it, with numbers that both chose::

    client                                              server
    (empty)                                         →
                                                    ←   challenge: realm, nonce
    response: user, realm, nonce, cnonce, digest    →
                                                    ←   rspauth: another digest, by which the client knows the server

What follows is neither encrypted nor protected (``qop=auth``), and no connection authenticates twice with one nonce. Apache's
clients and bookies do the same. Names and passwords are compared as they are, without the normalization of RFC 4013.

Ref: RFC 2831; Apache BookKeeper's SaslServerState and SaslConstants, Java's com.sun.security.sasl.digest.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_MESSAGE_BYTES = 4096
"""The largest message of a client. RFC 2831 names it; a response of Apache's clients has some 300 bytes."""

MAX_USER_CHARACTERS = 100
"""So much of a name that a client gives is shown in the audit log."""

_FIRST = b"00000001"
"""The count of the responses to a nonce."""

_DIRECTIVE = re.compile(rb'[\s,]*([a-zA-Z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|\Z)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ONCE = frozenset(
    {"username", "realm", "nonce", "cnonce", "nc", "qop", "digest-uri", "response", "charset", "authzid", "maxbuf", "cipher"}
)


@dataclass(frozen=True, slots=True)
class Service:
    """For what a client authenticates."""

    realm: str
    uri: str


BOOKKEEPER = Service("bookkeeper", "bookkeeper/bookkeeper")
"""Apache's clients and bookies take this name for every host."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The client knows the password of ``user``. ``answer`` shows it that the server does, too."""

    user: str
    answer: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotProven:
    """``user`` is whom the client calls itself, as far as it said so."""

    reason: str
    user: str = ""


def challenge(nonce: str, service: Service = BOOKKEEPER) -> bytes:
    """The server's first message. ``nonce`` is random, of letters and digits, and never used again."""
    return f'realm="{service.realm}",nonce="{nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()


def verify(
    response: bytes, nonce: str, password_of: Callable[[str], str | None], service: Service = BOOKKEEPER
) -> Proven | NotProven:
    """Whether the response to the challenge with ``nonce`` is right. ``password_of`` gives None where there is no such user."""
    said = _directives(response)
    if said is None:
        return NotProven("it sends no response of DIGEST-MD5")
    try:
        user = said["username"].decode("utf-8" if "charset" in said else "latin-1")
    except (KeyError, UnicodeDecodeError):
        return NotProven("its response of DIGEST-MD5 names no user")
    shown = user[:MAX_USER_CHARACTERS]
    wrong = _wrong_terms(said, nonce, service)
    if wrong:
        return NotProven(f"its response of DIGEST-MD5 has a wrong {wrong}", shown)
    if said.get("authzid", said["username"]) != said["username"]:
        return NotProven("it wants to act for another user", shown)
    password = password_of(user)
    # For a user that there is not the work is the same, so that the time of an answer does not tell.
    session = _session(_key(user, password or "", service), said)
    is_right = hmac.compare_digest(_digest(session, said, b"AUTHENTICATE:"), said["response"].lower())
    if password is None:
        return NotProven("there is no such user", shown)
    if not is_right:
        return NotProven("its password is wrong", shown)
    return Proven(user, b"rspauth=" + _digest(session, said, b":"))


def _directives(response: bytes) -> dict[str, bytes] | None:
    """The values by their names; None if they are not of this form, or one is there twice."""
    found: dict[str, bytes] = {}
    at, end = 0, len(response.rstrip(b" \t\r\n,"))
    if end > MAX_MESSAGE_BYTES:
        return None
    while at < end:
        match = _DIRECTIVE.match(response, at)
        if match is None:
            return None
        name, quoted, token = match.groups()
        key = name.decode("ascii").lower()
        if key in found and key in _ONCE:
            return None
        found[key] = _ESCAPED.sub(rb"\1", quoted) if quoted is not None else token
        at = match.end()
    return found


def _wrong_terms(said: dict[str, bytes], nonce: str, service: Service) -> str:
    """The name of a directive that is not what the challenge asks for, or empty."""
    asked = {"realm": service.realm.encode(), "nonce": nonce.encode(), "nc": _FIRST}
    for name, value in asked.items():
        if said.get(name) != value:
            return name
    if said.get("qop", b"auth") != b"auth":
        return "qop"
    if said.get("charset", b"utf-8").lower() != b"utf-8":
        return "charset"
    if said.get("digest-uri", b"").lower() != service.uri.encode():
        return "digest-uri"
    return next((name for name in ("cnonce", "response") if not said.get(name)), "")


def _key(user: str, password: str, service: Service) -> bytes:
    return _md5(b":".join((_hashed(user), service.realm.encode(), _hashed(password)))).digest()


def _hashed(text: str) -> bytes:
    """As it is hashed: in ISO 8859-1 if that has all its characters, whatever it is sent in."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _session(key: bytes, said: dict[str, bytes]) -> bytes:
    """The digest that both directions have in common."""
    parts = [key, said["nonce"], said["cnonce"], *([said["authzid"]] if "authzid" in said else [])]
    return _hex(b":".join(parts))


def _digest(session: bytes, said: dict[str, bytes], direction: bytes) -> bytes:
    what = _hex(direction + said["digest-uri"])
    return _hex(b":".join((session, said["nonce"], said["nc"], said["cnonce"], b"auth", what)))


def _hex(data: bytes) -> bytes:
    return _md5(data).hexdigest().encode()


_md5 = hashlib.md5
