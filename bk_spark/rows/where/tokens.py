"""The tokens of option ``where``: names, literals, operators and marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from bk_spark.rows.where.tree import Literal, TypedText

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,9}+)?(?![\w.]))
    | (?P<prefixed>(?:DATE|TIMESTAMP(?:_LTZ|_NTZ)?|TIME|X)\s*'[^'\\]*')
    | (?P<string>'(?:[^'\\]|''|\\['"\\%_])*'|"(?:[^"\\]|""|\\['"\\%_])*")
    | (?P<word>[^\W\d]\w*)
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<operator><=>|<=|>=|<>|!=|==|=|<|>)
    | (?P<mark>[(),.])
    | (?P<other>\S)
    )""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ConditionToken:
    """``kind`` is the name of a group of the expression above, or ``end``."""

    kind: str
    text: str

    @property
    def keyword(self) -> str:
        """The word in upper case; empty for other tokens."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def is_literal(self) -> bool:
        return self.kind in _LITERALS or self.keyword in ("TRUE", "FALSE")

    def literal(self) -> Literal:
        """The value of a literal. An infinite float stands for a number that is too large for DOUBLE."""
        return _LITERALS[self.kind](self.text) if self.kind in _LITERALS else self.keyword == "TRUE"

    def name(self) -> str:
        """The name that a word, or a word in backquotes, stands for."""
        return self.text if self.kind == "word" else self.text[1:-1].replace("``", "`")


END = ConditionToken("end", "its end")


def tokens(text: str) -> Iterator[ConditionToken]:
    """The tokens up to the first invalid one, which ends parsing: matching behind it could take too long. Then END."""
    for match in _TOKEN.finditer(text.rstrip()):
        yield ConditionToken(str(match.lastgroup), match[0].strip())
        if match.lastgroup == "other":
            break
    yield END


def _number(text: str) -> Literal:
    return float(text) if "e" in text.lower() else Decimal(text)


def _string(text: str) -> str:
    r"""As Spark reads it: ``\%`` and ``\_`` keep their backslash, for LIKE."""
    quote = text[0]
    return re.sub(rf"{quote}{quote}|\\([^%_])", lambda match: match[1] or quote, text[1:-1])


def _typed(text: str) -> TypedText:
    kind, _, rest = text.partition("'")
    return TypedText(kind.strip().upper(), rest[:-1])


_LITERALS: dict[str, Callable[[str], Literal]] = {"number": _number, "string": _string, "prefixed": _typed}
