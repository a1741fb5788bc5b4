"""The sentences of ConfigError: "X is 'Y': Z" for a value that somebody gave, "X is Y: Z" for a state."""

import ast
import pickle
import re
from collections.abc import Iterator
from functools import cache

import pytest

from bk_spark.errors import ConfigError, State
from tests.unit.import_graph import FILES, PACKAGE

GIVEN = {"'rows'", "'topic'", "'csv'", "'embedded:…'", "'…:…'", "'……'", "'………'"}
"""What looks like words of the program in a call, and is the value that a user gave or has to give."""

PLURAL = re.compile(r"(?=.* )(?!.*(address|class|status|process)\b)(the )?(\w+ )?\w+[^su'.]s( (of|in|to|that|which) .*)?")


def _calls() -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Where each ConfigError is made, what it names, and its value."""
    for path, source in ((path, path.read_text()) for path in FILES):
        for node in ast.walk(ast.parse(source)) if "ConfigError(" in source else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("ConfigError", "MetadataAccessError"):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node.args[0], node.args[1]


def _shown(node: ast.expr) -> str | None:
    """A text as it stands in the sentence, "…" for what is filled in; None for another expression."""
    if isinstance(node, ast.Constant):
        return "missing" if node.value is None else repr(node.value)
    if isinstance(node, ast.JoinedStr):
        return repr("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "State":
        text = _shown(node.args[0])
        return None if text is None else str(ast.literal_eval(text))
    return None


@cache
def _sentences() -> tuple[tuple[str, str, str], ...]:
    """Place, thing and value of each."""
    shown = [(place, _shown(what), _shown(value)) for place, what, value in _calls()]
    return tuple((place, str(ast.literal_eval(what or "'X'")), value or "'Y'") for place, what, value in shown)


def test_every_call_is_found() -> None:
    assert len(_sentences()) > 300


def test_what_the_program_says_of_a_thing_is_no_quoted_value() -> None:
    """Whoever reads "this machine is 'not ready'" looks for a setting with that value."""
    quoted = [f"{place}: {what} is {value}" for place, what, value in _sentences() if value.startswith(("'", '"'))]
    assert [text for text in quoted if text.split(" is ", 1)[1] not in GIVEN | {"'Y'", "'…'"}] == []


def test_what_a_sentence_names_is_one_thing() -> None:
    """The sentence goes on with "is"."""
    assert [f"{place}: {what} is {value}" for place, what, value in _sentences() if PLURAL.fullmatch(what)] == []


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("lost", "the bookie is 'lost': look"),
        (7, "the bookie is 7: look"),
        (None, "the bookie is missing: look"),
        (State("not ready"), "the bookie is not ready: look"),
        (State("x" * 2000), f"the bookie is {'x' * 1000}… (2000 characters): look"),
    ],
)
def test_a_state_stands_in_the_sentence_without_quotes(value: object, sentence: str) -> None:
    error = ConfigError("the bookie", value, "look")
    assert str(error) == sentence
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.value) == (sentence, value)
