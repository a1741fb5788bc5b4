"""Finds decisions on values that were read from the metadata store, followed by a write that does not carry their version.

Between the two somebody else may change the value, and the write then undoes or ignores that. What is found in one function:

- **any version**: ``ANY_VERSION``, or no version at all;
- **version of nothing**: a write with the version of a read whose value nobody looked at, as if there were another one;
- **version of another read**: a write with the version of one read after a branch on another one, without a check of that;
- **create**: a creation after a branch on a read of another path, without a check of that;
- **call**: after a read, a call of a function that changes any version of the path that it is given.

Names decide what a call is, not types: a store is what is called ``store``, and a function reads if one of that name returns
what it read. Names that begin with an underscore count within their own module. Values that were read by one call count as one.
So the result is places to be reviewed, not a proof.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

READS = {"get", "get_many", "children"}
READING_FUNCTIONS = {"find", "find_children", "children_of", "grandchildren_of"}
"""Those that take a store as their first argument."""
CHANGES = {"SetValue": 2, "Delete": 1, "Check": 1}
"""Changes of a transaction, and the place of the version among their arguments."""
WRITES = {"set": 2, "delete": 1}
CREATES = {"create", "create_sequential"}
TRANSACTION = "transaction"
"""Of a store; the client has a method of that name, too."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """All of one kind in one function: ``any version, 2 times``."""

    function: str
    """Such as ``log/changes/jobs.py:WriteJobs.end``."""
    kind: str


def findings(files: Sequence[tuple[str, str]]) -> list[Finding]:
    """``files`` are their paths and texts. Those that import nothing of the stores are left out."""
    functions = [one for path, text in files if "metadata.store import" in text for one in _functions(path, ast.parse(text))]
    readers = _readers(functions)
    found = {one: Counter(_Look(one, readers).kinds()) for one in functions}
    unversioned = {one.known_as for one, kinds in found.items() if one.takes_path and kinds["any version"]}
    for one in functions:
        found[one].update(["call"] * _calls_after_a_read(one, readers, unversioned))
    counted = [(one.place, kind, count) for one, kinds in found.items() for kind, count in kinds.items() if count]
    return sorted(Finding(place, kind if count == 1 else f"{kind}, {count} times") for place, kind, count in counted)


def files_below(folder: Path) -> list[tuple[str, str]]:
    return [(str(path.relative_to(folder)), path.read_text()) for path in sorted(folder.rglob("*.py"))]


class _Function:
    def __init__(self, path: str, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.path = path
        self.place = f"{path}:{name}"
        self.known_as = self.named(node.name)
        self.nodes = _in_order(node)
        self.calls = [one for one in self.nodes if isinstance(one, ast.Call)]
        self.returns = any(isinstance(one, (ast.Return, ast.Yield, ast.YieldFrom)) and one.value for one in self.nodes)
        parameters = {one.arg for one in [*node.args.args, *node.args.kwonlyargs]} - {"self", "store", "znodes"}
        self.takes_path = bool(parameters & {name for call in self.calls for name in _names_in(call)})

    def named(self, name: str) -> str:
        """A name as it is known outside of this module, or in it alone."""
        return f"{self.path}:{name}" if name.startswith("_") else name

    def reads(self, node: ast.AST, readers: Set[str]) -> bool:
        return isinstance(node, ast.Call) and (_is_store_read(node) or self.named(_called(node)) in readers)


def _functions(path: str, tree: ast.AST, prefix: str = "") -> Iterator[_Function]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(path, node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield _Function(path, f"{prefix}{node.name}", node)


def _readers(functions: Sequence[_Function]) -> Set[str]:
    """The names of functions that return something and read, themselves or through others."""
    called = {one: {one.named(_called(call)) for call in one.calls} for one in functions if one.returns}
    readers = {one.known_as for one in called if any(_is_store_read(call) for call in one.calls)}
    while more := {one.known_as for one, names in called.items() if names & readers} - readers:
        readers |= more
    return readers - READS - WRITES.keys() - CREATES - {TRANSACTION}


def _calls_after_a_read(function: _Function, readers: Set[str], unversioned: Set[str]) -> int:
    calls = [call for call in function.calls if call.args]
    reads = [place for place, call in enumerate(calls) if function.reads(call, readers)]
    later = calls[reads[0] + 1 :] if reads else []
    return sum(function.named(_called(call)) in unversioned - WRITES.keys() for call in later)


class _Look:
    """A look at one function. A *read* is the text and place of its call; *origins* are the reads behind a variable."""

    def __init__(self, function: _Function, readers: Set[str]) -> None:
        self._function = function
        self._nodes = function.nodes
        self._readers = readers
        self._origins: dict[str, set[str]] = {}

    def kinds(self) -> Iterator[str]:
        compared = {id(node.comparators[0]) for node in self._nodes if isinstance(node, ast.Compare)}
        names = [node for node in self._nodes if isinstance(node, ast.Name) and node.id == "ANY_VERSION"]
        yield from ("any version" for node in names if id(node) not in compared)
        yield from ("any version" for call in self._function.calls if _is_write(call) and _version_of(call) is None)
        writes = [call for call in self._function.calls if _version_of(call) is not None or _is_creation(call)]
        if writes:
            self._find_origins()
        for call in writes:
            version = _version_of(call)
            if version is not None:
                yield from self._of_version(version, self._nodes.index(call))
            elif not self._checks() and self._branched_before(self._nodes.index(call), self._reads_of(call.args[0])):
                yield "create"

    def _of_version(self, version: ast.expr, place: int) -> Iterator[str]:
        names = {node.id for node in ast.walk(version) if isinstance(node, ast.Name)} - {"self"}
        own = {origin for name in names for origin in self._origins.get(name, ())}
        if any(self._function.reads(node, self._readers) for node in ast.walk(version)) or (own and self._is_unseen(names)):
            yield "version of nothing"
        elif own and not self._checks() and self._branched_before(place, own):
            yield "version of another read"

    def _is_unseen(self, names: set[str]) -> bool:
        """Whether of what was read together with these variables nothing but the version is used."""
        targets = [_names_in(node) for node in self._nodes if _is_target(node)]
        together = {one for target in targets if names & target for one in target - names}
        versions = {id(node.value) for node in self._nodes if isinstance(node, ast.Attribute) and node.attr == "version"}
        uses = [node for node in self._nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        if together:  # metadata, version = ...
            return not any(use.id in together for use in uses)
        return not any(use.id in names and id(use) not in versions for use in uses)

    def _branched_before(self, place: int, own: Set[str]) -> bool:
        """Whether before this place there is a branch on what was read otherwise than by ``own``."""
        inner = [node for test in _tests(self._nodes[:place]) for node in ast.walk(test)]
        direct = [_read(node) for node in inner if self._function.reads(node, self._readers)]
        origins = [self._origins.get(node.id, set()) for node in inner if isinstance(node, ast.Name)]
        return any(one not in own for one in direct) or any(one and not one & own for one in origins)

    def _reads_of(self, path: ast.expr) -> Set[str]:
        """The reads of the very path that is created: if it exists by now, the creation is refused."""
        reads = {_read(call) for call in self._function.calls if self._function.reads(call, self._readers)}
        return {read for read in reads if ast.unparse(path) in read}

    def _checks(self) -> bool:
        """Whether it builds a transaction that checks something that it read."""
        return any(_called(call) == "Check" for call in self._function.calls)

    def _find_origins(self) -> None:
        for _ in range(2):  # once more for loops, where a variable may be used above its assignment
            for target, value in (one for node in self._nodes for one in _assignments(node)):
                found = {_read(node) for node in ast.walk(value) if self._function.reads(node, self._readers)}
                found |= {origin for name in _names_in(value) for origin in self._origins.get(name, ())}
                for name in _names_in(target) if found else ():
                    self._origins.setdefault(name, set()).update(found)


def _read(call: ast.AST) -> str:
    assert isinstance(call, ast.Call)
    return f"{ast.unparse(call)} at {call.lineno}:{call.col_offset}"


def _tests(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Match):
            yield node.subject


def _assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter


def _is_target(node: ast.AST) -> bool:
    return isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store)


def _names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _in_order(function: ast.AST) -> list[ast.AST]:
    """All nodes as they stand in the text; ``ast.walk`` goes by their depth."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(function):
        nodes += [child, *_in_order(child)]
    return nodes


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _is_store(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith("store")


def _of_store(call: ast.Call, names: Set[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in names and _is_store(call.func.value)


def _is_store_read(call: ast.Call) -> bool:
    return _of_store(call, READS) or bool(_called(call) in READING_FUNCTIONS and call.args and _is_store(call.args[0]))


def _is_write(call: ast.Call) -> bool:
    return _of_store(call, WRITES.keys()) or (isinstance(call.func, ast.Name) and call.func.id in CHANGES)


def _version_of(call: ast.Call) -> ast.expr | None:
    """The version that a write carries; None for what is no write, and where there is none."""
    place = (CHANGES | WRITES)[_called(call)] if _is_write(call) else len(call.args)
    by_name = [word.value for word in call.keywords if word.arg == "version"]
    return by_name[0] if by_name and _is_write(call) else call.args[place] if place < len(call.args) else None


def _is_creation(call: ast.Call) -> bool:
    is_change = isinstance(call.func, ast.Name) and call.func.id == "Create"
    return bool(call.args) and (is_change or _of_store(call, CREATES))
