"""What README.md, DESIGN.md and docs/ say exists: links, commands, options, settings, metrics, the manifests for Kubernetes.

Examples in Python: test_examples.py. Metrics: test_metrics.py. Rules: test_rules.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import bk_spark
from bk_spark import BookieConfig, BookKeeper, ClientConfig, KeyCompaction, LocalCluster, Retention, Tier
from bk_spark.cli import build_parser
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.commands.settings import bookie_config
from bk_spark.config import LedgerOptions
from bk_spark.datasource.option_table import OPTIONS
from bk_spark.datasource.spark_schema import METADATA_COLUMNS
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.local.cluster import LocalBookie
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.tier_columns import CONFIRMED, LENGTH, PLACE
from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry import metrics
from bk_spark.topic.topic import Topic
from tests.checkout import ROOT
from tests.unit import documented_commands as commands
from tests.unit.documented_tables import TABLES, written
from tests.unit.small_yaml import load_all

README = ROOT / "README.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
DEPLOYMENT = sorted((ROOT / "docs" / "deployment").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MANUAL = [README, *GUIDE, *DEPLOYMENT]
MANIFESTS = sorted((ROOT / "docs" / "deployment" / "kubernetes").glob("*.yaml"))
MAX_README_LINES = 150
OTHER_NAMES = {
    "nettyMaxFrameSizeBytes",
    "maxMessageSize",
    "partitionBy",
    "insertInto",
    "foreachBatch",
    "superDigest",
    "bookkeeperExplicitLacIntervalInMills",
}
"""Names of this form that are Spark's, ZooKeeper's or Pulsar's."""


def _parameters(method: object) -> set[str]:
    """The name of a method or property, and of its parameters."""
    if isinstance(method, property):
        return {method.fget.__name__} if method.fget else set()
    if not inspect.isfunction(method):
        return set()
    return {method.__name__, *inspect.signature(method).parameters}


SETTINGS = {
    field.name
    for config in (BookieConfig, ClientConfig, AutoRecoveryConfig, GatewayConfig, LedgerOptions, Retention, Tier, KeyCompaction)
    for field in dataclasses.fields(config)
}
HANDLES = {
    "bookkeeper": (BookKeeper,),
    "writer": (WriteHandle, LogWriteHandle),
    "reader": (ReadHandle,),
    "log": (Log,),
    "leader": (LogWriteHandle,),
    "topic": (Topic,),
    "cluster": (LocalCluster, LocalBookie),
}
"""What the guide calls an object → its classes."""
CALLABLE = {one for classes in HANDLES.values() for one in classes} | {AdvWriteHandle}
ARGUMENTS = {name for one in CALLABLE for method in vars(one).values() for name in _parameters(method)}
COLUMNS = {
    "ledger_id",
    "entry_id",
    "last_add_confirmed",
    *METADATA_COLUMNS.names,
    *MESSAGE_SCHEMA.names,
    "batch_index",
    *PLACE,
    LENGTH,
    CONFIRMED,
}
OTHER_WORDS = {"bk_spark", "client_config", "ids_given_out_again", "highest_ledger_id", "timestamp_ntz", "from_protobuf"} | {
    "get_flight_info",
    "list_flights",
    "list_actions",
    "do_exchange",
    "list_schemas",
    "get_schema",
}
OTHER_OPTIONS = {"--py-files", "--constraint", "--add-opens"}
NO_MODULES = {"bk_spark.log", "bk_spark.job", "bk_spark.zip", "bk_spark.audit", "bk_spark.embedded.host"}
"""Two tags of ledgers, a file, a logger, and what a process is shown as."""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", _without_blocks(page))
    wrong = [link for link in links if not re.match(r"[a-z]+:", link) and not _leads_somewhere(page, link)]
    assert sorted(set(wrong)) == []


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in _anchors(target))


@cache
def _anchors(page: Path) -> set[str]:
    """The headings of a page as links name them: GitHub's form. The second of two with one text ends in ``-1``."""
    found: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ (.+)$", _without_blocks(page), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        anchors.add(f"{text}-{found[text]}" if found[text] else text)
        found[text] += 1
    return anchors


def _without_blocks(page: Path) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_every_page_that_code_tests_and_pages_name_exists() -> None:
    sources = [*PAGES, *(path for name in ("bk_spark", "tests", "benchmarks", "examples") for path in _sources(ROOT / name))]
    named = {(_name(path), page) for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())}
    assert sorted((path, page) for path, page in named if not (ROOT / page).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_module_and_name_of_ours_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    files = re.findall(r"`([\w/]+\.(?:py|proto))`", text)
    names = set(re.findall(r"\bbk_spark(?:\.\w+)+", text)) - NO_MODULES
    wrong = [name for name in files if not _is_file(name)] + [name for name in names if not _resolves(name)]
    assert sorted(set(wrong)) == []


def _is_file(name: str) -> bool:
    """A path from the root or from the package, or the name of one file somewhere."""
    return (ROOT / name).exists() or any(True for _ in (ROOT / "bk_spark").rglob(name)) or (ROOT / "bk_spark" / name).exists()


def _resolves(name: str) -> bool:
    found: object = bk_spark
    for place, part in enumerate(name.split(".")[1:], 2):
        with contextlib.suppress(ImportError):
            importlib.import_module(".".join(name.split(".")[:place]))
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_every_section_that_code_and_tests_refer_to_exists() -> None:
    """``Ref: docs/formats.md, "Cookie"`` and the like."""
    missing = set()
    for path in [path for name in ("bk_spark", "tests", "benchmarks", "examples") for path in _sources(ROOT / name)]:
        text = " ".join(path.read_text().split())
        for page, section in re.findall(r'(DESIGN\.md|docs/[\w/-]+\.md), "([A-Z][^"]+)"', text):
            titles = re.findall(r"^#+ (.+)$|^(?:- )?\*\*(.+?)\*\*", (ROOT / page).read_text(), re.MULTILINE)
            if not any(title.startswith(section) for both in titles for title in both):
                missing.add((_name(path), page, section))
    assert sorted(missing) == []


def _sources(directory: Path) -> list[Path]:
    return [path for ending in ("py", "proto", "yaml") for path in directory.rglob(f"*.{ending}")]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_a_page_shows_is_taken_by_the_parser(page: Path) -> None:
    text = page.read_text()
    whole = [commands.problem_of_command(command) for command in commands.shown_in_blocks(text)]
    named = [commands.problem_of_words(command) for command in commands.shown_in_sentences(text)]
    assert [problem for problem in [*whole, *named] if problem] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_target_of_make_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert sorted(named - targets) == []


@pytest.mark.parametrize("page", MANUAL, ids=_name)
def test_every_option_setting_metric_and_method_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    known = SETTINGS | ARGUMENTS | COLUMNS | OTHER_WORDS | _metric_names()
    options = set(commands.options_in_sentences(text)) - commands.all_options() - OTHER_OPTIONS
    words = {word for code in _codes(text) for word in re.findall(r"^_?[a-z]+(?:_[a-z0-9]+)+", code)}
    assert (sorted(options), sorted(words - known)) == ([], [])


@pytest.mark.parametrize("page", [README, *GUIDE], ids=_name)
def test_every_method_that_a_page_calls_on_a_handle_exists(page: Path) -> None:
    called = {found for code in _codes(page.read_text()) for found in re.findall(r"^(\w+)\.(\w+)\(", code)}
    known = {(name, method) for name, method in called if any(hasattr(one, method) for one in HANDLES.get(name, ()))}
    assert sorted((name, method) for name, method in called - known if name in HANDLES) == []


@pytest.mark.parametrize("page", [README, *GUIDE], ids=_name)
def test_every_option_of_spark_and_every_error_that_a_page_names_exists(page: Path) -> None:
    options = {option.name for option in OPTIONS} | OTHER_NAMES
    codes = _codes(page.read_text())
    named = {name for code in codes for name in re.findall(r"^([a-z]+(?:[A-Z][a-z]+)+)(?:=\w+)?$", code)}
    raised = {name for code in codes for name in re.findall(r"\b[A-Z]\w+Error\b", code)}
    assert (sorted(named - options), sorted(name for name in raised if not hasattr(bk_spark, name))) == ([], [])


def _codes(text: str) -> list[str]:
    """What stands between backticks in sentences and tables."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL))


def test_the_guide_says_what_each_error_means() -> None:
    page = (ROOT / "docs" / "guide" / "python.md").read_text()
    assert [name for name in bk_spark.__all__ if name.endswith("Error") and name not in page] == []


def test_the_guide_names_every_command() -> None:
    page = (ROOT / "docs" / "guide" / "operate.md").read_text()
    table = page.split("## All commands")[1].split("## Settings")[0]
    named = {named for row in table.splitlines() if row.startswith("| `bk-spark ") for named in _commands_of_row(row)}
    assert sorted(set(commands.all_commands()) ^ named) == []


def _commands_of_row(row: str) -> Iterator[str]:
    """``bk-spark log list``, ``show`` is "log list" and "log show"; ``bookie gc run``, ``gc status`` likewise."""
    [first, *others] = re.findall(r"`([^`]+)`", row.split("|")[1])
    words = first.removeprefix("bk-spark ").split()
    yield " ".join(words)
    for other in others:
        yield " ".join([*words[: len(words) - len(other.split())], other])


@pytest.mark.parametrize(("page", "name"), TABLES, ids=str)
def test_the_tables_made_from_the_code_are_up_to_date(page: str, name: str) -> None:
    """``python -m tests.unit.documented_tables`` writes them."""
    assert written(page, name) == TABLES[page, name]()


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
