"""No decision on a value of the metadata store is followed by a write without its version; exceptions have a reason each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bk_spark
from tests.unit.check_then_act.analysis import Finding, files_below, findings
from tests.unit.check_then_act.reviewed import REVIEWED

PACKAGE = Path(bk_spark.__file__).parent


def kinds_in(body: str) -> list[str]:
    """The kinds of what is found in a module with this text."""
    return [one.kind for one in findings([("module.py", f"from bk_spark.metadata.store import find\n\n{body}")])]


def test_what_is_written_back_carries_its_version_or_a_reviewed_reason():
    found = set(findings(files_below(PACKAGE)))
    reviewed = {Finding(function, kind) for function, reasons in REVIEWED.items() for kind in reasons}
    assert not found - reviewed, "give the write the version of what was decided on; if that cannot be, add a reason"
    assert not reviewed - found, "nothing is found there any more: take the entry out"


def test_each_reason_is_a_sentence_about_its_place():
    assert all(len(reason.split()) >= 6 for reasons in REVIEWED.values() for reason in reasons.values())


def test_no_store_has_a_default_for_a_version():
    store = ast.parse((PACKAGE / "metadata/store.py").read_text())
    versions = [one for one in ast.walk(store) if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == "version"]
    assert versions
    assert not [one for one in versions if one.value is not None]
    deletes = [one for one in ast.walk(store) if isinstance(one, ast.FunctionDef) and one.name in ("delete", "set")]
    assert deletes
    assert not [default for one in deletes for default in (*one.args.defaults, *one.args.kw_defaults)]


BUGS = {
    "a deletion of any version after a look": (
        """
class LedgerStore:
    def metadata(self, ledger_id):
        return decoded(self._store.get(path_of(ledger_id)))
    def delete(self, ledger_id):
        self._store.delete(path_of(ledger_id), ANY_VERSION)
class Client:
    def delete_ledger(self, ledger_id):
        if self._ledgers.metadata(ledger_id).custom("log"):
            raise ConfigError
        self._ledgers.delete(ledger_id)
""",
        "any version",
    ),
    "a version that is read only to be given": (
        """
def delete_ledger(store, path, check):
    check(decoded(store.get(path)))
    store.delete(path, store.get(path).version)
""",
        "version of nothing",
    ),
    "a version that is read only to be given, by way of a variable": (
        """
def delete_ledger(store, path):
    now = store.get(path)
    store.delete(path, now.version)
""",
        "version of nothing",
    ),
    "a version out of a pair whose value nobody looks at": (
        """
class Client:
    def versioned(self, ledger_id):
        found = self._store.get(path_of(ledger_id))
        return decoded(found), found.version
    def delete_ledger(self, ledger_id):
        metadata, version = self.versioned(ledger_id)
        self._store.delete(path_of(ledger_id), version)
""",
        "version of nothing",
    ),
    "a decision on one read, and the version of the next": (
        """
def adopt(store, path, tag):
    if has_owner(store.get(path)):
        raise ConfigError
    found = store.get(path)
    store.set(path, tagged(found.value, tag), found.version)
""",
        "version of another read",
    ),
    "a decision on one znode, and the version of another one": (
        """
def close(store, head, ledger):
    state = store.get(head)
    if state.value == b"deleting":
        return
    found = store.get(ledger)
    store.transaction([SetValue(ledger, closed(found.value), found.version)])
""",
        "version of another read",
    ),
    "a creation that rests on another znode": (
        """
def begin(store, head, job):
    if find(store, head) is None:
        raise NoSuchLogError
    store.create(job)
""",
        "create",
    ),
    "a creation in a transaction that rests on another znode": (
        """
def begin(store, head, job):
    found = store.get(head)
    if found.value == b"deleting":
        raise NoSuchLogError
    store.transaction([Create(job)])
""",
        "create",
    ),
    "a helper that deletes whatever is there, called after a look": (
        """
def remove(store, path):
    store.delete(path, ANY_VERSION)
def sweep(store, path):
    if store.get(path).value == b"old":
        remove(store, path)
""",
        "call",
    ),
    "a deletion without a version": (
        """
def delete_ledger(store, path):
    if decoded(store.get(path)).custom("log"):
        raise ConfigError
    store.delete(path)
""",
        "any version",
    ),
    "any version handed to a helper": (
        """
def remove(store, path, version):
    store.delete(path, version)
def sweep(store, path):
    if store.get(path).value == b"old":
        remove(store, path, ANY_VERSION)
""",
        "any version",
    ),
    "a listing that is filtered, and then deleted whatever it is": (
        """
def clear(store, path):
    for name in [one for one in store.children(path) if store.get(one).value == b"old"]:
        store.transaction([Delete(name, ANY_VERSION)])
""",
        "any version",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_finds(bug: str):
    body, kind = BUGS[bug]
    assert kind in kinds_in(body)


SOUND = {
    "a compare-and-set of what was looked at": """
def adopt(store, path, tag):
    found = store.get(path)
    if found.value == tag:
        return
    store.set(path, tag, found.version)
""",
    "a compare-and-set that looks again after a conflict": """
def adopt(store, path, tag):
    found = store.get(path)
    while found.value != tag:
        try:
            store.set(path, tag, found.version)
        except BadVersionError:
            found = store.get(path)
""",
    "a creation of the very path that was missing": """
def begin(store, path):
    if find(store, path) is None:
        store.create(path)
""",
    "a creation beside a check of what it rests on": """
def begin(store, head, job):
    found = store.get(head)
    if found.value != b"deleting":
        store.transaction([Check(head, found.version), Create(job)])
""",
    "a pair of value and version, both used": """
class Ledgers:
    def versioned(self, ledger_id):
        found = self._store.get(path_of(ledger_id))
        return decoded(found), found.version
    def delete(self, seen):
        found, version = self.versioned(seen.ledger_id)
        if found != seen:
            return False
        self._store.delete(path_of(seen.ledger_id), version)
""",
}


@pytest.mark.parametrize("sound", SOUND)
def test_lets_pass(sound: str):
    assert kinds_in(SOUND[sound]) == []


MENDED = {
    "client/ledger/ledger_store.py": ("self._store.delete(path, version)", "self._store.delete(path, ANY_VERSION)"),
    "metadata/ledger_locks.py": ("self._store.delete(path, found.version)", "self._store.delete(path, ANY_VERSION)"),
    "log/changes/delete.py": ("Delete(pointer, pointing.version)", "Delete(pointer, ANY_VERSION)"),
    "log/changes/ledgers.py": (
        "self._store.set(self._znodes.ledger(ledger.ledger_id), tagged.encode(), znode_version)",
        "self._store.set(self._znodes.ledger(ledger.ledger_id), tagged.encode(), self._store.get(path).version)",
    ),
    "replication/auditor_znodes.py": (
        "self._store.delete(self._znodes.audit_request, request.version)",
        "self._store.delete(self._znodes.audit_request, find(self._store, self._znodes.audit_request).version)",
    ),
    "log/stored/names.py": (
        "self._store.set(self.paths(uid).head, changed.encode(), znode_version)",
        "self._store.set(self.paths(uid).head, changed.encode(), self.stored_head(name, uid)[1])",
    ),
    "bookie/identity/cookie_file.py": (
        "store.set(path, value, found.version)",
        "store.set(path, value, store.get(path).version)",
    ),
    "metadata/registration.py": (
        "_remove(store, path, other.version)",
        "_remove(store, path, ANY_VERSION if other.version else other.version)",
    ),
    "metadata/under_replication.py": (
        "return [SetValue(path, to_text(merged), found.version)]",
        "return [SetValue(path, to_text(merged), find(self._store, path).version)]",
    ),
}


@pytest.mark.parametrize("path", MENDED)
def test_finds_the_version_taken_out_of_the_products_own_code(path: str):
    sound, broken = MENDED[path]
    text = (PACKAGE / path).read_text()
    assert sound in text
    assert set(findings([(path, text.replace(sound, broken))])) - set(findings([(path, text)]))
