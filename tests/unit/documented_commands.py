"""The ``bk-spark`` commands that a text shows, and whether the real parser takes them."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache

from bk_spark.cli import build_parser

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_PLACES = {"PORT": "3181", "ITS_PORT": "3181", "ID": "7", "N": "7", "LEDGER[:ENTRY]": "7:1"}
"""What stands for a number."""


_parser = cache(build_parser)
"""Made once, for a parser of all commands takes a twentieth of a second."""


def blocks(text: str, *languages: str) -> list[str]:
    """The code blocks of these languages."""
    return [block for _, language, block in _BLOCK.findall(text) if language in languages]


def blocks_with_lines(text: str, language: str) -> list[tuple[int, str]]:
    """The code blocks of a language, each with the number of lines before it."""
    found = (match for match in _BLOCK.finditer(text) if match[2] == language)
    return [(text[: match.start(3)].count("\n"), match[3]) for match in found]


def shown_in_blocks(text: str) -> Iterator[str]:
    """Whole commands, as somebody would type them."""
    for block in blocks(text, "sh", "ini"):
        for line in block.replace("\\\n", " ").splitlines():
            yield from in_script(line)


def in_script(line: str) -> Iterator[str]:
    """The command of a line of a shell script, without what is before it and what comments on it."""
    found = re.search(r"(?:^|/|-- |\|\| )bk-spark (.*)", line.strip())
    if found and not line.lstrip().startswith("#"):
        yield re.split(r"\s#\s|\s[|>]\s|\s&&\s", found.group(1))[0].strip()


def shown_in_sentences(text: str) -> Iterator[str]:
    """Commands in prose, which may lack what a real one needs."""
    for code in _INLINE.findall(_BLOCK.sub("", text)):
        if code.startswith("bk-spark ") and "…" not in code.split()[1]:
            yield code.removeprefix("bk-spark ")


def options_in_sentences(text: str) -> Iterator[str]:
    for code in _INLINE.findall(_BLOCK.sub("", text)):
        if code.startswith("--"):
            yield re.split(r"[\s=]", code)[0]


def problem_of_command(command: str) -> str | None:
    """Why the real parser does not take it."""
    words = [
        _PLACES.get(word, word)
        for word in shlex.split(re.sub(r"\$\([^)]*\)|\$\w+", "x", command.replace("%i", "1")))
        if word != "…"
    ]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _parser().parse_args(words)
    except SystemExit as ended:
        return f"bk-spark {command}: {said.getvalue().splitlines()[-1]}" if ended.code else None
    return None


def problem_of_words(command: str) -> str | None:
    """Why there is no such command, or no such option of it; what is missing does not matter."""
    for alternative in _alternatives(command.split()):
        parser, rest = _descend(_parser(), alternative)
        if rest and _children(parser) and not rest[0].startswith("-"):
            return f"bk-spark {command}: there is no {rest[0]!r}"
        for word in rest:
            if word.startswith("--") and word.split("=")[0] not in parser._option_string_actions:
                return f"bk-spark {command}: there is no {word}"
    return None


def all_options() -> set[str]:
    """The names of all options of all commands."""
    return {name for parser in parsers(_parser()) for name in parser._option_string_actions}


def all_commands() -> list[str]:
    """Every command without its program: ``log list``, ``doctor``."""
    return [
        one.prog.removeprefix("bk-spark ") for one in parsers(_parser()) if not _children(one) or one.get_default("handler")
    ]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """This one, and those of all commands below it."""
    yield parser
    for child in _children(parser).values():
        yield from parsers(child)


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices) if groups else {}


def _descend(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    while words and words[0] in _children(parser):
        parser, words = _children(parser)[words[0]], words[1:]
    return parser, words


def _alternatives(words: list[str]) -> list[list[str]]:
    """``log vacuum|compact`` is two commands."""
    found: list[list[str]] = [[]]
    for word in words:
        found = [[*before, one] for before in found for one in word.split("|")]
    return found
