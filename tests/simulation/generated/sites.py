"""Mutants made from the source: each place where a guard may be dropped, a comparison flipped or a command skipped.

Nothing of bk_spark is imported here, so that a process that forks from this one can load a mutated module in place of the
shipped one.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from tests.checkout import ROOT

TARGETS = (
    "bk_spark/client/protocol",
    "bk_spark/bookie/bookie.py",
    "bk_spark/bookie/admission.py",
    "bk_spark/bookie/batch_read.py",
    "bk_spark/bookie/storage",
)
"""What the simulator plays with the shipped code."""

LEFT_OUT = ("bk_spark/client/protocol/limits.py",)
"""Numbers without decisions."""

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

QUIET = ("logger", "super", "note", "mark")
"""Calls that begin so decide nothing: they log, or call a base class."""

Apply = Callable[[], None]
"""Changes the tree in place."""


@dataclass(frozen=True, slots=True)
class _Change:
    text: str
    lines: range
    apply: Apply


@dataclass(frozen=True, slots=True)
class Site:
    """``function`` and ``text`` name it for people, and stay the same when other lines of the module change."""

    path: str
    function: str
    text: str
    number: int
    """Its place in the module, in the order of ``_sites``."""
    lines: range
    """Of the module. A run that executes none of them plays the shipped code."""

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def name(self) -> str:
        return f"{self.path} | {self.function} | {self.text}"


def all_sites() -> list[Site]:
    """In the order of files and lines."""
    return [
        Site(path, function, change.text, number, change.lines)
        for path in _files()
        for number, (function, change) in enumerate(_sites(_parse(path)))
    ]


def sample(count: int, seed: int) -> list[Site]:
    """``count`` sites by chance, the same for a seed. A change of the source exchanges only the sites that it changes."""
    copies: Counter[str] = Counter()

    def rank(site: Site) -> bytes:
        copies[site.name] += 1
        return hashlib.sha256(f"{seed}/{site.name}/{copies[site.name]}".encode()).digest()

    return sorted(all_sites(), key=rank)[:count]


def mutated(site: Site) -> ast.Module:
    """The module's tree with this one change."""
    tree = _parse(site.path)
    next(itertools.islice(_sites(tree), site.number, None))[1].apply()
    return ast.fix_missing_locations(tree)


def _files() -> Iterator[str]:
    for target in TARGETS:
        path = ROOT / target
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            if name not in LEFT_OUT:
                yield name


def _parse(path: str) -> ast.Module:
    return ast.parse(Path(ROOT, path).read_text())


def _sites(tree: ast.Module) -> Iterator[tuple[str, _Change]]:
    """The name of a function, and what may be changed in it."""
    return ((name, change) for function, name in _functions(tree) for change in _of_function(function))


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            yield from ((one, f"{node.name}.{one.name}") for one in node.body if isinstance(one, ast.FunctionDef))


def _of_function(function: ast.FunctionDef) -> Iterator[_Change]:
    for node in list(ast.walk(function)):
        for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
            for index, statement in enumerate(body) if isinstance(body, list) else ():
                if _is_guard(statement):
                    yield _Change(f"drop: {_first_line(statement)}", _lines(statement.test), _drop(body, index))
                elif _is_command(statement):
                    yield _Change(f"skip: {_first_line(statement)}", _lines(statement), _drop(body, index))
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                text = f"flip {type(operator).__name__}: {_first_line(node)}"
                yield _Change(text, _lines(node), _flip(node, index))
        elif isinstance(node, ast.BoolOp):
            for index, value in enumerate(node.values):
                text = f"drop {_first_line(value)} from: {_first_line(node)}"
                yield _Change(text, _lines(node), _leave_out(node, index))


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_guard(statement: ast.stmt) -> TypeGuard[ast.If]:
    """An ``if`` that leaves early."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _is_command(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = ast.unparse(statement.value.func)
    return not any(part.startswith(QUIET) for part in called.split("."))


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _drop(body: list[ast.stmt], index: int) -> Apply:
    def apply() -> None:
        body[index] = ast.copy_location(ast.Pass(), body[index])

    return apply


def _flip(node: ast.Compare, index: int) -> Apply:
    def apply() -> None:
        node.ops[index] = FLIPPED[type(node.ops[index])]()

    return apply


def _leave_out(node: ast.BoolOp, index: int) -> Apply:
    def apply() -> None:
        del node.values[index]
        if len(node.values) == 1:
            node.values.append(copy.deepcopy(node.values[0]))

    return apply
