"""Each command that is promised exists, is run by a test, and has help that a stranger understands."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from bk_spark import cli
from bk_spark.cli import build_parser
from tests.checkout import ROOT
from tests.unit.documented_commands import parsers

PROMISED = {
    "cluster init": "test_cluster_show_and_init",
    "cluster show": "test_cluster_show_and_init",
    "cluster protect": "test_an_open_cluster_is_protected_by_command",
    "local": "test_a_bookie_of_the_command_that_dies_is_named_and_started_again",
    "local copy": "test_the_copy_command_copies_what_nobody_uses_and_refuses_the_rest",
    "local accept-copy": "test_a_copy_that_was_made_in_use_is_refused_until_its_owner_accepts_it",
    "bookie format": "test_bookie_format_and_id",
    "bookie start": "test_bookie_format_and_start_take_a_file_of_settings",
    "bookie id": "test_bookie_format_and_id",
    "bookie sanity": "test_sanity_holds_a_stopped_bookie_against_the_metadata_store",
    "bookie list": "test_bookie_list_shows_every_bookie_with_its_space",
    "bookie decommission": "test_the_command_may_be_killed_and_run_again_while_clients_work",
    "ledger list": "test_ledger_list_shows_it",
    "ledger show": "test_ledger_show_prints_its_metadata_without_the_password",
    "ledger read": "test_ledger_read_prints_text_as_text_and_bytes_in_hexadecimal",
    "ledger recover": "test_ledger_recover_closes_what_a_vanished_writer_left_open",
    "ledger delete": "test_ledger_delete_deletes_it",
    "log list": "test_log_list_show_and_read",
    "log show": "test_log_list_show_and_read",
    "log read": "test_rows_are_read_in_every_format_and_appended_again_from_the_files",
    "log append": "test_rows_are_read_in_every_format_and_appended_again_from_the_files",
    "log truncate": "test_truncate_removes_what_lies_before_and_says_how_much",
    "log compact": "test_the_command_compacts_a_log_with_spark_and_says_what_it_did",
    "log vacuum": "test_vacuum_takes_one_log_or_all",
    "gateway": "test_the_gateway_command_serves_until_it_is_told_to_end",
    "tier run": "test_a_log_gets_a_tier_and_is_tiered_by_commands",
    "tier serve": "test_a_server_tiers_what_is_due_until_it_is_told_to_end",
    "log recover": "test_recover_closes_what_a_writer_left_open",
    "log secure": "test_secure_gives_later_ledgers_keys_and_says_which_have_none",
    "log readers": "test_commands_let_somebody_read_and_read_for_him",
    "log delete": "test_log_delete_deletes_it_with_its_ledgers",
    "bookie limbo": "test_the_limbo_of_a_bookie_is_shown_and_ended_by_command",
    "bookie gc run": "test_the_garbage_collection_of_a_bookie_is_suspended_resumed_and_run_by_command",
    "bookie gc suspend": "test_the_garbage_collection_of_a_bookie_is_suspended_resumed_and_run_by_command",
    "bookie gc resume": "test_the_garbage_collection_of_a_bookie_is_suspended_resumed_and_run_by_command",
    "bookie gc status": "test_the_garbage_collection_of_a_bookie_is_suspended_resumed_and_run_by_command",
    "bookie scrub": "test_a_bookie_scrubs_by_command_and_tells_its_state",
    "bookie rebuild-index": "test_a_bookie_whose_index_was_lost_and_rebuilt_comes_back_through_limbo",
    "orphans list": "test_a_killed_write_is_listed_then_swept_and_a_younger_one_is_neither",
    "orphans sweep": "test_a_killed_write_is_listed_then_swept_and_a_younger_one_is_neither",
    "replicate": "test_the_command_copies_with_spark_and_says_what_it_did",
    "cookie list": "test_cookie_list_shows_every_bookie_that_was_ever_formatted",
    "cookie show": "test_cookie_show_fix_and_delete",
    "cookie fix": "test_cookie_show_fix_and_delete",
    "cookie delete": "test_cookie_show_fix_and_delete",
    "inspect journal": "test_inspect_shows_the_files_of_a_running_bookie_as_text_and_as_json",
    "inspect entry-log": "test_inspect_shows_the_files_of_a_running_bookie_as_text_and_as_json",
    "inspect index": "test_inspect_shows_the_files_of_a_running_bookie_as_text_and_as_json",
    "inspect mark": "test_inspect_shows_the_files_of_a_running_bookie_as_text_and_as_json",
    "auditor run": "test_an_audit_that_is_triggered_is_made_by_the_auditor",
    "auditor who": "test_who_is_the_auditor_is_told_and_that_there_is_none",
    "auditor trigger": "test_an_audit_that_is_triggered_is_made_by_the_auditor",
    "autorecovery run": "test_a_process_takes_part_serves_metrics_and_ends_cleanly",
    "autorecovery enable": "test_autorecovery_is_disabled_and_enabled_for_the_whole_cluster",
    "autorecovery disable": "test_autorecovery_is_disabled_and_enabled_for_the_whole_cluster",
    "autorecovery status": "test_the_status_tells_who_does_what_and_which_bookies_are_gone",
    "underreplicated list": "test_marked_ledgers_are_listed_with_what_is_missing_since_when_and_who_works_on_them",
    "doctor": "test_doctor_finds_nothing_wrong_here",
    "token create": "test_a_token_made_with_json_is_what_a_gateway_takes_until_it_is_revoked",
    "token list": "test_a_token_made_with_json_is_what_a_gateway_takes_until_it_is_revoked",
    "token revoke": "test_a_token_made_with_json_is_what_a_gateway_takes_until_it_is_revoked",
    "grant add": "test_grants_are_added_listed_and_removed_and_each_says_what_it_changed",
    "grant list": "test_grants_are_added_listed_and_removed_and_each_says_what_it_changed",
    "grant remove": "test_grants_are_added_listed_and_removed_and_each_says_what_it_changed",
    "dashboard": "test_it_prints_its_address_serves_until_ctrl_c_and_ends_cleanly",
    "bench": "test_what_is_written_is_read_back_measured_and_deleted",
}
"""The rows of the public interface, and the test that runs the command."""

BESIDE = {
    "cluster raise-ledger-ids": "test_an_id_that_is_given_out_again_never_mixes_two_ledgers",
    "bookie read-only on": "test_a_bookie_is_switched_read_only_and_back_by_command_and_the_list_and_ready_say_why",
    "bookie read-only off": "test_a_bookie_is_switched_read_only_and_back_by_command_and_the_list_and_ready_say_why",
    "underreplicated racks": "test_ledgers_are_listed_whose_copies_could_be_in_more_racks",
    "bookie balance": "test_the_command_prints_how_full_bookies_are_and_is_interrupted_and_killed_and_run_again",
    "bookie status": "test_a_bookie_scrubs_by_command_and_tells_its_state",
    "log set": "test_set_changes_what_is_given_and_keeps_the_rest",
}
"""What users would expect beside them."""

COMMANDS = {**PROMISED, **BESIDE}
SOURCES = [path.read_text() for tier in ("cluster", "spark") for path in sorted((ROOT / "tests" / tier).rglob("test_*.py"))]
SAYS_ITS_DEFAULT = re.compile(r"default|at first|\bor the variable\b")


def _leaves(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """All commands that do something, by their words."""
    every = {one.prog.removeprefix("bk-spark").strip(): one for one in parsers(parser)}
    return {words: one for words, one in every.items() if "handler" in one._defaults}


LEAVES = _leaves(build_parser())


def test_the_commands_are_those_that_are_promised_and_no_others() -> None:
    assert sorted(LEAVES) == sorted(COMMANDS)


@pytest.mark.parametrize("words", LEAVES)
def test_a_command_is_the_same_where_others_are_not_imported(words: str) -> None:
    alone = _leaves(build_parser(words.split()))
    assert alone[words].format_help() == LEAVES[words].format_help()
    assert len(alone) < len(LEAVES)


@pytest.mark.parametrize("words", ["", "--help", "unknown", "bookie", "bookie --help", "bookie unknown", "log --help"])
def test_help_and_wrong_usage_know_every_command_that_could_be_meant(words: str) -> None:
    group = next((one for one in ("bookie ", "log ") if f"{words} ".startswith(one)), "")
    known = _leaves(build_parser(words.split()))
    assert {one for one in known if one.startswith(group)} == {one for one in LEAVES if one.startswith(group)}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_is_run_by_a_test(words: str) -> None:
    [source] = [text for text in SOURCES if f"def {COMMANDS[words]}(" in text]
    assert [word for word in words.split() if f'"{word}"' not in source] == []


@pytest.mark.parametrize("parser", list(parsers(build_parser())), ids=lambda parser: parser.prog)
def test_every_command_says_what_it_does_and_every_argument_what_it_is_for(parser: argparse.ArgumentParser) -> None:
    assert parser.description
    shown = parser.format_help()
    assert shown.startswith(f"usage: {parser.prog}")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert [choice.dest for choice in action._choices_actions if not choice.help] == []
        else:
            assert action.help, action.dest


@pytest.mark.parametrize("words", LEAVES)
def test_every_option_that_takes_a_value_says_what_holds_without_it(words: str) -> None:
    """Or it must be given, or nothing is done where it is not, as with a file that is not named."""
    silent = []
    for action in LEAVES[words]._actions:
        takes_value = action.option_strings and action.nargs != 0 and not action.required
        has_default = action.default not in (None, "", argparse.SUPPRESS) and action.dest != "metadata"
        if takes_value and has_default and not SAYS_ITS_DEFAULT.search(action.help or ""):
            silent.append(action.dest)
    assert silent == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_takes_the_cluster_and_prints_json(words: str) -> None:
    assert {"--metadata", "--json"} <= set(LEAVES[words]._option_string_actions)


def test_a_wrong_usage_repeats_a_screenful_of_what_was_typed_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        build_parser().parse_args(["cluster", "init", "--" + "m" * 20_000])
    assert len(capsys.readouterr().err) < 5_000


TAKE_A_BOOKIE = [words for words, parser in LEAVES.items() if any(one.dest == "bookie_id" for one in parser._actions)]


@pytest.mark.parametrize("words", TAKE_A_BOOKIE)
@pytest.mark.parametrize("bookie_id", ["", "..", ".", "a/b", "../x", "a b", "x" * 300])
def test_what_cannot_be_the_id_of_a_bookie_is_wrong_usage(
    words: str, bookie_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be a part of a path in the metadata store."""
    with pytest.raises(SystemExit, match="2"):
        build_parser().parse_args([*words.split(), bookie_id])
    assert "is not the id of a bookie" in capsys.readouterr().err


OF_FILES = {"bookie rebuild-index", "bookie sanity", "doctor", "local", "local accept-copy", "local copy"}
"""Commands that need no cluster, beside those of ``inspect``."""
FITTING = {"bookie_id": "host:3181-0a1b2c3d", "ledger_id": "7", "name": "orders", "before": "7", "files": "x.csv"}
FITTING |= {"token_name": "etl", "identity": "token:etl", "logs": "orders", "right": "read"}
"""A value for what must be given; any text fits the rest."""
WRONG = [
    ("bookie limbo", "host:3181-0a1b2c3d --end 1"),
    ("bookie limbo", "host:3181-0a1b2c3d --accept-loss"),
    ("bookie format", "--data-dir d --read-threads 0"),
    ("bookie start", "--data-dir d --gc-interval-s=-inf"),
    ("bench", "--batch 1000000000"),
    ("bench", "--ensemble-size 2 --write-quorum 3"),
    ("ledger read", "3 --first 3 --last 1"),
    ("ledger delete", "1_9"),
    ("ledger show", "\u0661\u0662"),
    ("ledger list", "--limi 3"),
    ("local", "--bookies -1"),
    ("log read", "orders --output rows"),
    ("log read", "orders --where a>>3"),
    ("log append", "orders rows"),
    ("log append", "orders - -"),
    ("log read", "orders --format table --json"),
    ("log read", "orders --format table --limi 3"),
    ("log set", "orders"),
    ("log vacuum", ""),
    ("tier run", ""),
    ("tier run", "orders --all"),
    ("log set", "orders --tier-catalog uri"),
    ("log truncate", "orders --before 99999999999999999999"),
    ("token create", "etl"),
    ("token create", "etl --ends-in-days 0"),
    ("token create", "a/b --never-ends"),
    ("token revoke", ".."),
    ("grant add", "etl --logs orders --right read"),
    ("grant add", "token:etl --logs a*b --right read"),
    ("grant add", "token:etl --logs a/b --right read"),
    ("grant add", "token:etl --logs orders --right write"),
    ("grant remove", "token:etl"),
    ("grant remove", "token:etl --logs orders --all"),
    ("auditor run", "--audit-interval-s 64m"),
    ("replicate", "host:3181-0a1b2c3d --parallel-ledgers 0"),
]


def _fitting(words: str) -> list[str]:
    """The command with what must be given."""
    typed = words.split()
    for action in LEAVES[words]._actions:
        if action.required and not isinstance(action, argparse._SubParsersAction):
            typed += [*action.option_strings[:1], FITTING.get(action.dest, "x")]
    more = {
        "token create": ["--never-ends"],
        "grant remove": ["--all"],
        "log vacuum": ["--all"],
        "tier run": ["--all"],
        "log set": ["--retention-s", "60"],
    }
    return [*typed, *more.get(words, [])]


PARSER = build_parser()
"""Made once: it takes a twentieth of a second."""


def _code(*typed: str) -> int:
    try:
        return cli._run(PARSER.parse_args(typed))
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("words", sorted(set(LEAVES) - OF_FILES - {one for one in LEAVES if one.startswith("inspect ")}))
def test_without_a_cluster_every_command_that_needs_one_is_wrong_usage(words: str, capsys) -> None:
    assert _code(*_fitting(words), "--metadata=") == 2
    assert "--metadata is missing: give the cluster" in capsys.readouterr().err


@pytest.mark.parametrize("words", sorted(set(LEAVES) - OF_FILES - {one for one in LEAVES if one.startswith("inspect ")}))
def test_what_cannot_be_the_uri_of_a_cluster_is_wrong_usage(words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("zk://h:1", "nope", "zk://h/ledgers", "embedded:"):
        assert _code(*_fitting(words), f"--metadata={uri}") == 2
        assert f"--metadata {uri!r} names no cluster: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_refuses_options_that_are_unknown_or_abbreviated_in_few_lines_without_control_characters(
    words: str, capsys
) -> None:
    for wrong in ("--metadat=zk://h:1/l", "--no\x1b[31m\u202e"):
        assert _code(*_fitting(words), wrong) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 2
        assert told.startswith(f"usage: bk-spark {words}") or words == "local"
        assert "unrecognized arguments: --" in told
        assert not {"\x1b", "\u202e"} & set(told)


@pytest.mark.parametrize(("words", "typed"), WRONG)
def test_what_the_arguments_alone_show_to_be_wrong_is_wrong_usage(words: str, typed: str, capsys) -> None:
    assert _code(*words.split(), *typed.split(), "--metadata", "zk://127.0.0.1:1/ledgers") == 2
    assert capsys.readouterr().err.startswith("usage: bk-spark")


@pytest.mark.parametrize("words", sorted(one for one in LEAVES if any(it.dest == "name" for it in LEAVES[one]._actions)))
def test_what_cannot_be_the_name_of_a_log_is_wrong_usage(words: str, capsys) -> None:
    if not words.startswith("log "):
        return
    typed = _fitting(words)
    for name in ("", "a/b", "..", "x\n", "x" * 300, "\udcff"):
        assert _code(*[name if word == "orders" else word for word in typed], *([name] if words == "log vacuum" else [])) == 2
