"""Errors: every one has a sentence, survives pickling, and stands in the tree that the module draws."""

import pickle
from dataclasses import fields

import pytest

from bk_spark import errors
from bk_spark.errors import BookKeeperError

SAMPLES: dict[str, object] = {
    "int": 3,
    "str": "text",
    "object": "value",
    "float": 1.5,
    "tuple[str, ...]": ("a: timeout", "b: refused"),
    "int | None": 5,
    "str | None": "text",
    "bool": False,
}


def _all_classes() -> list[type[BookKeeperError]]:
    return [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BookKeeperError) and c is not BookKeeperError
    ]


@pytest.mark.parametrize("kind", _all_classes())
def test_an_error_pickles_with_its_fields_and_says_one_sentence(kind: type[BookKeeperError]) -> None:
    error = kind(*[SAMPLES[str(field.type)] for field in fields(kind)])
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert [getattr(back, f.name) for f in fields(kind)] == [getattr(error, f.name) for f in fields(kind)]
    assert str(back) == str(error)
    assert str(error)


@pytest.mark.parametrize("kind", _all_classes())
def test_an_error_s_sentence_can_be_printed_whatever_its_fields_hold(kind: type[BookKeeperError]) -> None:
    samples = SAMPLES | {"str": "a\ud800", "str | None": "\udfff", "object": "\ud800", "tuple[str, ...]": ("\udc80",)}
    given = [samples[str(field.type)] for field in fields(kind)]
    error = kind(*given)
    str(error).encode()
    assert [getattr(pickle.loads(pickle.dumps(error)), field.name) for field in fields(kind)] == given


def test_a_sentence_keeps_every_character_that_can_be_printed() -> None:
    assert str(errors.NoSuchLogError("ü\U0001d11e\\ud800\ud800")).startswith("there is no log 'ü\U0001d11e\\ud800\\ud800'")


def test_the_tree_in_the_docstring_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in _all_classes() if kind.__name__ not in drawn] == []


def test_every_error_is_named_as_it_is_imported() -> None:
    assert {kind.__module__ for kind in [BookKeeperError, *_all_classes()]} == {"bk_spark.errors"}
