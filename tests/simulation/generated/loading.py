"""Loads a mutated module in place of the shipped one, in a process that has not loaded the shipped one."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from tests.checkout import ROOT
from tests.simulation.generated.sites import Site, mutated


def load_in_place(site: Site) -> None:
    """From now on an import of the site's module gives the mutant."""
    assert site.module not in sys.modules, f"{site.module} is loaded already"
    sys.meta_path.insert(0, _Finder(site))


class _Loader(SourceFileLoader):
    def __init__(self, site: Site) -> None:
        super().__init__(site.module, str(ROOT / site.path))
        self._site = site

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self._site), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, site: Site) -> None:
        self._site = site

    def find_spec(self, fullname: str, _: Any, __: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._site.module:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(self._site), origin=str(ROOT / self._site.path))
