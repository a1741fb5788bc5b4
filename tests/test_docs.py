"""What README.md and docs/ say exists: links, commands, options, settings, metrics, and the manifests for Kubernetes."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bk_spark.cli import build_parser
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.commands.settings import bookie_config
from bk_spark.config import BookieConfig, ClientConfig, LedgerOptions
from bk_spark.telemetry import metrics
from tests import documented_commands as commands
from tests.small_yaml import load_all

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEPLOYMENT = sorted((ROOT / "docs" / "deployment").glob("*.md"))
MANIFESTS = sorted((ROOT / "docs" / "deployment" / "kubernetes").glob("*.yaml"))
SETTINGS = {
    field.name
    for config in (BookieConfig, ClientConfig, AutoRecoveryConfig, LedgerOptions)
    for field in dataclasses.fields(config)
}
NO_SETTINGS = {"bk_spark"}
"""Other words of this form that the pages of docs/deployment use."""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    here = [link.split("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in here if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_a_page_shows_is_taken_by_the_parser(page: Path) -> None:
    text = page.read_text()
    whole = [commands.problem_of_command(command) for command in commands.shown_in_blocks(text)]
    named = [commands.problem_of_words(command) for command in commands.shown_in_sentences(text)]
    assert [problem for problem in [*whole, *named] if problem] == []


@pytest.mark.parametrize("page", DEPLOYMENT, ids=_name)
def test_every_option_setting_and_metric_that_a_page_names_exists(page: Path) -> None:
    text, known = page.read_text(), SETTINGS | NO_SETTINGS | _metric_names()
    options = set(commands.options_in_sentences(text)) - commands.all_options()
    words = {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"^[a-z]+(?:_[a-z0-9]+)+$", code)}
    assert (sorted(options), sorted(words - known)) == ([], [])


def _metric_names() -> set[str]:
    described = [one for family in metrics.DESCRIBED.values() for one in family]
    return {str(getattr(one, "name", one)) for one in described}


def test_commands_that_do_not_exist_are_noticed() -> None:
    text = "`bk-spark log eat|show` and `bk-spark ledger show --loud`\n\n```sh\nbk-spark bookie start --rack /a  # x\n```\n"
    assert [commands.problem_of_words(one) is None for one in commands.shown_in_sentences(text)] == [False, False]
    [problem] = [commands.problem_of_command(one) for one in commands.shown_in_blocks(text)]
    assert "--data-dir" in (problem or "")


# --- Kubernetes

Manifest = dict[str, Any]


def _manifests() -> list[Manifest]:
    return [document for path in MANIFESTS for document in load_all(path.read_text())]


def _pods() -> Iterator[tuple[str, Manifest, Manifest]]:
    """Name, pod, and what holds its template."""
    for one in _manifests():
        if "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"], one["spec"]


def _containers() -> Iterator[tuple[str, Manifest]]:
    for name, pod, _ in _pods():
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            yield f"{name}/{container['name']}", container


def _command_lines(container: Manifest) -> list[str]:
    """The ``bk-spark`` commands that a container runs."""
    if "bk-spark" not in container["image"]:
        return []
    if "args" in container:
        return [" ".join(str(word) for word in container["args"])]
    return [found for line in container["command"][-1].splitlines() for found in commands.in_script(line)]


def test_every_command_line_of_the_manifests_is_taken_by_the_parser() -> None:
    lines = {name: _command_lines(container) for name, container in _containers()}
    assert {name: len(found) for name, found in lines.items()} == {
        "autorecovery/autorecovery": 1,
        "bookie/format": 1,
        "bookie/bookie": 1,
        "bk-spark-cluster-init/init": 1,
        "zookeeper/zookeeper": 0,
    }
    assert [problem for found in lines.values() for one in found if (problem := commands.problem_of_command(one))] == []


def test_the_bookies_settings_in_the_manifest_are_taken_by_a_bookie(tmp_path: Path) -> None:
    [settings] = [one["data"] for one in _manifests() if one["kind"] == "ConfigMap" and "bookie.toml" in one["data"]]
    (tmp_path / "bookie.toml").write_text(settings["bookie.toml"])
    assert set(tomllib.loads(settings["bookie.toml"])) <= SETTINGS
    arguments = ["bookie", "start", "--data-dir", "d", "--config", str(tmp_path / "bookie.toml")]
    assert bookie_config(build_parser().parse_args(arguments)) is not None


def test_what_the_pods_mount_probe_and_take_their_environment_from_exists() -> None:
    named = {(one["kind"], one["metadata"]["name"]) for one in _manifests()}
    for name, pod, owner in _pods():
        claims = [claim["metadata"]["name"] for claim in owner.get("volumeClaimTemplates", [])]
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])} | set(claims)
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            ports = {port["name"] for port in container.get("ports", [])}
            probes = [value for key, value in container.items() if key.endswith("Probe")]
            probed = {check["port"] for probe in probes for key, check in probe.items() if key in ("httpGet", "tcpSocket")}
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            sources = {
                (f"{key[0].upper()}{key[1:-3]}", ref["name"])
                for one in container.get("envFrom", [])
                for key, ref in one.items()
            }
            assert (probed - ports, mounted - volumes, sources - named) == (set(), set(), set()), name


def test_services_budgets_and_workloads_select_the_pods_that_they_mean() -> None:
    labels = [pod["metadata"]["labels"] for _, pod, _ in _pods() if "metadata" in pod]
    for one in _manifests():
        selector = one.get("spec", {}).get("selector")
        if selector is not None:
            assert selector.get("matchLabels", selector) in labels, one["metadata"]["name"]


def test_the_dockerfile_installs_this_package_for_a_python_that_it_supports() -> None:
    lines = (ROOT / "docs/deployment/kubernetes/Dockerfile").read_text().splitlines()
    [version] = [re.match(r"FROM python:3\.(\d+)-slim", line) for line in lines if line.startswith("FROM")]
    assert version is not None
    assert int(version.group(1)) >= 11
    assert any("pip install" in line for line in lines)


def test_yaml_that_is_not_understood_is_refused() -> None:
    assert load_all('a: {b: [1, "x # y"]}  # c\nd:\n- e: f:3\n  g: |\n    h\n      i\n\n- j\n') == [
        {"a": {"b": [1, "x # y"]}, "d": [{"e": "f:3", "g": "h\n  i\n"}, "j"]}
    ]
    for text in ("a: &b c\n", "a: b\na: c\n", "a: >\n  b\n", "a: b\n   c: d\n"):
        with pytest.raises(ValueError, match="this is"):
            load_all(text)
