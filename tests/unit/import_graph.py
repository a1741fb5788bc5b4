"""Who imports whom in ``bk_spark/``, read from the code: imports inside of functions and for type checking alone included."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.checkout import ROOT

PACKAGE = ROOT / "bk_spark"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)


def module_of(path: Path) -> str:
    """Its name without ``bk_spark.``, a package by the name of its folder; the top package is ``""``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "/".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def nodes_of(path: Path, word: str = "import") -> Iterator[ast.AST]:
    """All nodes of the syntax tree of a file that has this word. Nobody keeps trees: the garbage collector would go through all
    of them again and again."""
    text = path.read_text()
    return ast.walk(ast.parse(text)) if word in text else iter(())


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Every dotted name that a file imports: modules, and what it takes from them."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def missing_names(path: Path) -> set[str]:
    """What a file takes from ``bk_spark``, or replaces there by ``monkeypatch.setattr(thing, "name", …)``, and is not there."""
    nodes = [node for node in nodes_of(path, "bk_spark") if isinstance(node, ast.ImportFrom | ast.Call)]
    taken = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module)]
    missing = {f"{one.module}.{alias.name}" for one in taken for alias in one.names if not _has(str(one.module), alias.name)}
    things = {alias.asname or alias.name: (str(one.module), alias.name) for one in taken for alias in one.names}
    return missing | {
        f"{'.'.join(things[thing])}.{name}"
        for thing, name in _replaced(nodes)
        if thing in things and not hasattr(_thing(*things[thing]), name)
    }


def _replaced(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            match node.args:
                case [ast.Name(thing), ast.Constant(str(name)), _] if not node.keywords:  # raising=False
                    yield thing, name


def _thing(module: str, name: str) -> object:
    if _has(module, name) and not hasattr(importlib.import_module(module), name):
        return importlib.import_module(f"{module}.{name}")
    return getattr(importlib.import_module(module), name)


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


def imported_modules(path: Path) -> set[str]:
    """The modules of ``bk_spark`` that a file imports."""
    names = {name.removeprefix("bk_spark").lstrip(".").replace(".", "/") for name in imported_names(path) if _is_ours(name)}
    return {name for name in names if name in MODULES and not _is_only_a_way(name, names)} - {module_of(path)}


@cache
def graph() -> dict[str, set[str]]:
    """Each module and the modules that it imports."""
    return {module: imported_modules(path) for module, path in MODULES.items()}


def _is_ours(name: str) -> bool:
    return name == "bk_spark" or name.startswith("bk_spark.")


def _is_only_a_way(name: str, names: set[str]) -> bool:
    """``from bk_spark.client import placement`` names the package too, and takes nothing from it but the module."""
    return MODULES[name].name == "__init__.py" and any(other.startswith(f"{name}/") or not name for other in names - {name})


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Every set of modules that import each other, directly or through others."""
    reached = {node: _reachable(graph, node) for node in graph}
    found = {tuple(sorted({node} | {other for other in reached[node] if node in reached[other]})) for node in graph}
    return sorted(list(group) for group in found if len(group) > 1 or group[0] in reached[group[0]])


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def floors(graph: dict[str, set[str]]) -> int:
    """The length of the longest chain of imports, in a graph without circles."""
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = 1 + max((height(other) for other in graph.get(node, set())), default=0)
        return heights[node]

    return max(height(node) for node in graph)
