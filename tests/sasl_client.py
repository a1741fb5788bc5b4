"""A client's side of DIGEST-MD5, written from RFC 2831 alone: it shares no code with what it tests."""

from __future__ import annotations

import hashlib
import re


def _md5(*parts: bytes) -> bytes:
    return hashlib.md5(b":".join(parts)).digest()


def _hex(*parts: bytes) -> bytes:
    return _md5(*parts).hex().encode()


def nonce_of(challenge: bytes) -> bytes:
    found = re.search(rb'nonce="([^"]+)"', challenge)
    assert found is not None
    return found.group(1)


def digest(
    user: bytes, password: bytes, nonce: bytes, direction: bytes, uri: bytes, realm: bytes, authzid: bytes = b""
) -> bytes:
    session = _hex(_md5(user, realm, password), nonce, b"cnonce", *([authzid] if authzid else []))
    return _hex(session, nonce, b"00000001", b"cnonce", b"auth", _hex(direction, uri))


def response(
    user: str,
    password: str,
    nonce: bytes,
    *,
    uri: bytes = b"bookkeeper/bookkeeper",
    realm: bytes = b"bookkeeper",
    authzid: str = "",
) -> bytes:
    """As Apache's client has it, whose user and password are in ISO 8859-1 for the digest."""
    value = digest(user.encode("latin-1"), password.encode("latin-1"), nonce, b"AUTHENTICATE", uri, realm, authzid.encode())
    parts = {
        b"charset": b"utf-8",
        b"username": b'"' + user.encode() + b'"',
        b"realm": b'"' + realm + b'"',
        b"nonce": b'"' + nonce + b'"',
        b"nc": b"00000001",
        b"cnonce": b'"cnonce"',
        b"digest-uri": b'"' + uri + b'"',
        b"maxbuf": b"65536",
        b"response": value,
        b"qop": b"auth",
    }
    if authzid:
        parts[b"authzid"] = b'"' + authzid.encode() + b'"'
    return b",".join(name + b"=" + one for name, one in parts.items())


def proof(user: str, password: str, nonce: bytes, authzid: str = "") -> bytes:
    """What the server must answer."""
    arguments = b"bookkeeper/bookkeeper", b"bookkeeper", authzid.encode()
    return b"rspauth=" + digest(user.encode("latin-1"), password.encode("latin-1"), nonce, b"", *arguments)
