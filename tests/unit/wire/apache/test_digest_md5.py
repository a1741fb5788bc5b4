"""DIGEST-MD5 as a server speaks it. Ref: RFC 2831, section 4 for its examples; Java's DigestMD5Client for its messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bk_spark.wire.apache.digest_md5 import MAX_MESSAGE_BYTES, NotProven, Proven, Service, challenge, verify
from tests.sasl_client import proof, response

NONCE = "0123456789abcdef"
USER, PASSWORD = "bookkeeper-etl", 'p:a"s\\s'
PASSWORDS = {USER: PASSWORD, "bookkeeper-\u00e9": "\u00fcber", "bookkeeper-\u20ac": "x", "b,k": "x", 'b"k\\': "x"}

RFC_EXAMPLES = {
    "imap": (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,'
        b'cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",response=d388dad90d4bbd760a152321f2143af7,qop=auth',
        "OA6MG9tEQGm2hh",
        b"rspauth=ea40f60335c427b5527b84dbabcdfffd",
    ),
    "acap": (
        b'username="chris",realm="elwood.innosoft.com",nonce="OA9BSXrbuRhWay",nc=00000001,cnonce="OA9BSuZWMSpW8m",'
        b'digest-uri="acap/elwood.innosoft.com",response=6084c6db3fede7352c551284490fd0fc,qop=auth',
        "OA9BSXrbuRhWay",
        b"rspauth=2f0b3d7c3c2e486600ef710726aa2eae",
    ),
}


def verified(message: bytes, nonce: str = NONCE) -> Proven | NotProven:
    return verify(message, nonce, PASSWORDS.get)


def right(user: str = USER, password: str = PASSWORD, **other: Any) -> bytes:
    return response(user, password, NONCE.encode(), **other)


@pytest.mark.parametrize("protocol", RFC_EXAMPLES)
def test_the_examples_of_the_rfc_are_proven_and_answered_as_it_says(protocol: str) -> None:
    message, nonce, answer = RFC_EXAMPLES[protocol]
    service = Service("elwood.innosoft.com", f"{protocol}/elwood.innosoft.com")
    assert verify(message, nonce, {"chris": "secret"}.get, service) == Proven("chris", answer)
    assert verify(message, nonce, {"chris": "Secret"}.get, service) == NotProven("its password is wrong", "chris")


def test_the_challenge_is_what_apaches_bookies_send() -> None:
    assert challenge(NONCE) == b'realm="bookkeeper",nonce="0123456789abcdef",qop="auth",charset=utf-8,algorithm=md5-sess'


@pytest.mark.parametrize("authzid", ["", USER])
def test_a_client_that_knows_the_password_is_proven_and_shown_that_the_server_does(authzid: str) -> None:
    """Apache's client names itself as the user to act for, too."""
    assert verified(right(authzid=authzid)) == Proven(USER, proof(USER, PASSWORD, NONCE.encode(), authzid))


def test_a_name_or_password_outside_of_ascii_is_hashed_in_iso_8859_1_and_sent_in_utf_8() -> None:
    assert isinstance(verified(right("bookkeeper-\u00e9", "\u00fcber")), Proven)


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        (right(password="wrong"), NotProven("its password is wrong", USER)),
        (right("nobody"), NotProven("there is no such user", "nobody")),
        (right("nobody", ""), NotProven("there is no such user", "nobody")),
        (right(authzid="bookkeeper-other"), NotProven("it wants to act for another user", USER)),
        (right(uri=b"bookkeeper/other"), NotProven("its response of DIGEST-MD5 has a wrong digest-uri", USER)),
        (right(realm=b"other"), NotProven("its response of DIGEST-MD5 has a wrong realm", USER)),
        (right().replace(b"nc=00000001", b"nc=00000002"), NotProven("its response of DIGEST-MD5 has a wrong nc", USER)),
        (right().replace(b"qop=auth", b"qop=auth-int"), NotProven("its response of DIGEST-MD5 has a wrong qop", USER)),
        (right().replace(b"utf-8", b"utf-7"), NotProven("its response of DIGEST-MD5 has a wrong charset", USER)),
        (right().replace(b'cnonce="cnonce"', b'cnonce=""'), NotProven("its response of DIGEST-MD5 has a wrong cnonce", USER)),
        (right().replace(b"response=", b"answer="), NotProven("its response of DIGEST-MD5 has a wrong response", USER)),
        (right().replace(b"username=", b"user="), NotProven("its response of DIGEST-MD5 names no user")),
        (right().replace(USER.encode(), b"\xff"), NotProven("its response of DIGEST-MD5 names no user")),
        (right() + b',username="other"', NotProven("it sends no response of DIGEST-MD5")),
        (right() + b"," + b"x" * MAX_MESSAGE_BYTES + b"=1", NotProven("it sends no response of DIGEST-MD5")),
        (right() + b',other="', NotProven("it sends no response of DIGEST-MD5")),
        (b"", NotProven("its response of DIGEST-MD5 names no user")),
        (b"`\x82\x02", NotProven("it sends no response of DIGEST-MD5")),
    ],
)
def test_whatever_is_wrong_is_refused_with_the_reason_and_the_name_that_was_given(message: bytes, refused: NotProven) -> None:
    assert verified(message) == refused


def test_a_response_to_an_earlier_challenge_is_refused() -> None:
    assert verified(right(), "fedcba9876543210") == NotProven("its response of DIGEST-MD5 has a wrong nonce", USER)


def test_spaces_order_and_what_is_not_known_do_not_matter() -> None:
    parts = right().split(b",")
    random.Random(1).shuffle(parts)
    assert isinstance(verified(b" , ".join([b"other=1", b'other="2"', *parts]) + b" ,"), Proven)


def test_no_digest_shows_in_a_text() -> None:
    assert "rspauth" not in repr(verified(right()))


def test_long_names_are_shown_in_part() -> None:
    found = verified(right("n" * 1000))
    assert isinstance(found, NotProven)
    assert found.user == "n" * 100
