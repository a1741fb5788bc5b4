"""What the help says of a setting: the first sentence below its field in the class, so that both are one text."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from itertools import pairwise


@cache
def setting_texts(config: type) -> dict[str, str]:
    """For each field of a class of settings that has a text: its first sentence, on one line, ready for argparse."""
    [defined] = ast.parse(inspect.getsource(config)).body
    assert isinstance(defined, ast.ClassDef)
    found = {}
    for field, below in pairwise(defined.body):
        text = _text(below)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and text is not None:
            found[field.target.id] = _first_sentence(text).replace("%", "%%")
    return found


def setting_help(config: type, name: str, default: str) -> str:
    """The text of one setting's option."""
    return f"{setting_texts(config)[name]} (default {default})"


def _text(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


def _first_sentence(text: str) -> str:
    joined = " ".join(text.replace("``", "").split())
    first = re.split(r"(?<=[a-z0-9)])\. ", joined)[0].rstrip(".")
    word = first.split()[0]
    return first[0].lower() + first[1:] if word == word.capitalize() else first
