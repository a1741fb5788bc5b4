"""The part of YAML that the manifests in docs/ are written in, so that tests can read them without another dependency.

Mappings and lists by indentation, ``{a: b}`` and ``[a, b]``, quoted and plain scalars, ``|`` for text of several lines,
comments. What is beyond that raises ValueError.
"""

from __future__ import annotations

import json
import re
from typing import Any

_KEY = re.compile(r"([^\s:{}\[\],\"'&*#|>-][^:{}\[\],\"'&*]*):(?:\s+(.*))?$")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN = re.compile(r"[^,{}\[\]\"'&*|>]+")


def load_all(text: str) -> list[Any]:
    """The documents of a file."""
    return [_Document(part).value() for part in re.split(r"^---\s*$", text, flags=re.MULTILINE) if part.strip()]


def without_comment(line: str) -> str:
    kept = re.match(r'((?:"(?:[^"\\]|\\.)*"|(?<=\S)#|[^"#])*)', line)
    assert kept is not None
    return kept.group(1).rstrip()


class _Document:
    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._at = 0

    def value(self) -> Any:
        self._skip()
        found = self._block(self._indent())
        self._skip()
        if self._at < len(self._lines):
            raise ValueError(f"this is not understood: {self._lines[self._at]!r}")
        return found

    def _skip(self) -> None:
        while self._at < len(self._lines) and not without_comment(self._lines[self._at]).strip():
            self._at += 1

    def _indent(self) -> int:
        """Of the next line; -1 at the end."""
        self._skip()
        if self._at == len(self._lines):
            return -1
        line = self._lines[self._at]
        return len(line) - len(line.lstrip())

    def _text(self) -> str:
        return without_comment(self._lines[self._at]).strip()

    def _block(self, indent: int) -> Any:
        if self._text().startswith("-"):
            return self._list(indent)
        return self._mapping(indent)

    def _list(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while self._indent() == indent and self._text().startswith("- "):
            line = self._lines[self._at]
            rest = line[:indent] + "  " + line[indent + 2 :]
            if _KEY.match(self._text()[2:]):
                self._lines[self._at] = rest
                items.append(self._mapping(indent + 2))
            else:
                items.append(self._scalar(self._text()[2:], indent))
        return items

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._indent() == indent and not self._text().startswith("- "):
            key = _KEY.match(self._text())
            if key is None or key.group(1) in found:
                raise ValueError(f"this is no 'key: value', or its key is there twice: {self._text()!r}")
            found[key.group(1)] = self._scalar(key.group(2) or "", indent)
        return found

    def _scalar(self, text: str, indent: int) -> Any:
        """What stands behind a key or a dash, on the same line or below."""
        self._at += 1
        if text == "|":
            return self._literal(indent)
        if text:
            value, rest = _flow(text)
            if rest:
                raise ValueError(f"this is not understood: {text!r}")
            return value
        below = self._indent()
        if below > indent or (below == indent and self._text().startswith("- ")):
            return self._block(below)
        return None

    def _literal(self, indent: int) -> str:
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            lines.append(line)
            self._at += 1
        width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        return "\n".join(line[width:] for line in lines).rstrip() + "\n"


def _flow(text: str) -> tuple[Any, str]:
    """A value, and what follows it."""
    if text[0] in "[{":
        return _collection(text)
    quoted = _QUOTED.match(text)
    if quoted:
        return json.loads(quoted.group()), text[quoted.end() :].lstrip()
    plain = _PLAIN.match(text)
    if plain is None:
        raise ValueError(f"this is not understood: {text!r}")
    return _plain(plain.group().strip()), text[plain.end() :].lstrip()


def _collection(text: str) -> tuple[Any, str]:
    close, rest = "]}"["[{".index(text[0])], text[1:].lstrip()
    pairs: dict[str, Any] = {}
    items: list[Any] = []
    while rest[0] != close:
        if close == "}":
            key, _, rest = rest.partition(":")
            pairs[key.strip()], rest = _flow(rest.lstrip())
        else:
            value, rest = _flow(rest)
            items.append(value)
        rest = rest.removeprefix(",").lstrip()
    return (pairs if close == "}" else items), rest[1:].lstrip()


def _plain(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text
