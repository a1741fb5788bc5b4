"""Mutants made from the source: each is a module of its own, and each explanation of a survivor names one that exists."""

import ast
from pathlib import Path

from tests.checkout import ROOT
from tests.simulation.generated.search import explanations
from tests.simulation.generated.sites import all_sites, mutated, sample


def test_each_mutant_compiles_and_differs_from_the_source() -> None:
    for site in sample(10, seed=1):
        changed = mutated(site)
        compile(changed, site.path, "exec")
        assert ast.unparse(changed) != ast.unparse(ast.parse(Path(ROOT, site.path).read_text()))


def test_a_seed_draws_the_same_mutants_each_time() -> None:
    assert sample(50, seed=7) == sample(50, seed=7) != sample(50, seed=8)


def test_each_explanation_names_a_mutant_that_exists() -> None:
    assert sorted(explanations().keys() - {site.name for site in all_sites()}) == []
