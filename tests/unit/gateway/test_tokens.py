"""A token is recognised by its hash, has one text, and shows its secret nowhere."""

from __future__ import annotations

import dataclasses
import random
import secrets

import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.tokens import BearerToken, StoredToken, check_token_name, is_token_id, new_token, parse_token

TOKEN = BearerToken("AAECAwQFBgc", bytes(range(32)))
TEXT = "bks_AAECAwQFBgc_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def stored(token: BearerToken, *, ends_ms: int | None = None, name: str = "etl") -> StoredToken:
    return StoredToken(token.token_id, name, token.digest, 1_000, ends_ms, "op@host")


def test_a_token_has_the_form_that_the_guide_shows() -> None:
    """Other programs look for it, and it never changes."""
    assert TOKEN.text == TEXT
    assert TOKEN.digest.hex() == "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"


def test_new_tokens_are_as_random_as_what_they_are_made_from() -> None:
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return secrets.token_bytes(count)

    tokens = {new_token(random_bytes).text for _ in range(100)}
    assert (len(tokens), asked) == (100, [8, 32] * 100)


def test_a_token_reads_back_as_it_is_written() -> None:
    draw = random.Random(1)
    for _ in range(300):
        token = new_token(draw.randbytes)
        assert parse_token(token.text) == token
        assert is_token_id(token.token_id)


def test_nothing_else_is_a_token_not_even_other_letters_for_the_same_bits() -> None:
    last = TEXT[-1]
    others = [TEXT[:-1] + chr(ord(last) + step) for step in (1, 2)]  # the last two bits of the last letter say nothing
    wrong = [
        "",
        "bks_",
        TEXT[:-1],
        TEXT + "A",
        TEXT + "=",
        " " + TEXT,
        TEXT + "\n",
        TEXT.replace("_", "-"),
        TEXT.upper(),
        *others,
    ]
    wrong += ["bks_AAECAwQFBgd" + TEXT[15:], TEXT.replace("bks", "bkt"), TEXT.replace("A", "ａ", 1), TEXT.replace("A", "+", 1)]
    assert [text for text in wrong if parse_token(text) is not None] == []


def test_a_drawn_change_of_one_letter_makes_another_token_or_none() -> None:
    draw = random.Random(2)
    known = stored(TOKEN)
    for _ in range(500):
        at = draw.randrange(len(TEXT))
        changed = TEXT[:at] + draw.choice("ABCabc019-_ .\x00ü") + TEXT[at + 1 :]
        found = parse_token(changed)
        assert (found is not None and known.is_of(found)) == (changed == TEXT)


def test_a_secret_fits_the_token_that_it_was_made_with_alone() -> None:
    assert stored(TOKEN).is_of(TOKEN)
    assert not stored(TOKEN).is_of(BearerToken(TOKEN.token_id, bytes(32)))
    assert not stored(TOKEN).is_of(BearerToken("AAAAAAAAAAA", TOKEN.secret))


def test_a_token_ends_at_its_time_or_never() -> None:
    assert [stored(TOKEN, ends_ms=5_000).has_ended(now_ms) for now_ms in (4_999, 5_000)] == [False, True]
    assert not stored(TOKEN).has_ended(2**60)


def test_the_secret_is_in_no_text_of_a_token_but_its_own() -> None:
    shown = repr(TOKEN) + str(TOKEN) + repr(stored(TOKEN)) + str(stored(TOKEN).identity)
    assert TEXT[16:] not in shown
    assert repr(TOKEN.secret) not in shown
    assert [field.name for field in dataclasses.fields(StoredToken) if "secret" in field.name] == []


@pytest.mark.parametrize("name", ["etl", "a", "A1", "spark.nightly-2_b", "x" * 64])
def test_a_name_of_a_token_is_a_plain_word(name: str) -> None:
    check_token_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a b", "a/b", "ü", "a\n", "x" * 65, "a:b", "*"])
def test_every_other_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 letters"):
        check_token_name(name)
    with pytest.raises(ConfigError):
        stored(TOKEN, name=name)


@pytest.mark.parametrize("token_id", ["", "..", "AAAAAAAAAA", "AAAAAAAAAA/", "AAAAAAAAAAAA", "AAAAAAAAAAB"])
def test_what_is_no_id_never_becomes_a_part_of_a_path(token_id: str) -> None:
    assert not is_token_id(token_id)
    with pytest.raises(ConfigError):
        stored(BearerToken(token_id, bytes(32)))
