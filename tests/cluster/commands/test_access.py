"""``bk-spark token`` and ``bk-spark grant``, run for real."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.gateway.granted_access import GrantedAccess, granted_access
from bk_spark.gateway.rights import Right
from bk_spark.gateway.stored_access import StoredAccess
from tests.cluster.small_commits import entry_ledgers

PEER = "ipv4:10.0.0.9:41234"


@pytest.fixture
def access(client: BookKeeper) -> Iterator[GrantedAccess]:
    """What a gateway that starts now knows."""
    opened = granted_access(client.metadata_store, client.znodes)
    yield opened
    opened.close()


@pytest.fixture
def token(log: str) -> str:
    """A name that no other test uses."""
    return log[-60:].lstrip("-")


def named(records, name):
    return [one for one in records if one["name"] == name]


def test_a_token_is_printed_once_alone_and_only_its_hash_is_stored(run, client, token, capsys):
    assert main(["token", "create", token, "--ends-in-days", "90"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"bks_[\w-]{11}_[\w-]{43}\n", out)
    assert "printed this once" in err
    assert "it may do nothing yet: 'bk-spark grant add token:" in err
    [listed] = named(run("token", "list"), token)
    assert (listed["state"], listed["grants"]) == ("lives", 0)
    assert listed["id"] == out[4:15]
    assert listed["ends_ms"] - listed["created_ms"] == 90 * 86_400_000
    assert abs(listed["created_ms"] / 1000 - time.time()) < 3600
    assert "@" in listed["made_by"]
    assert main(["token", "list"]) == 0
    assert out[16:59] not in str(run("token", "list")) + capsys.readouterr().out + err
    znodes, store = client.znodes, client.metadata_store
    values = [
        store.get(f"{directory}/{name}").value
        for directory in (znodes.access_tokens, znodes.access_changes)
        for name in store.children(directory)
    ]
    assert not [value for value in values if out[16:59].encode() in value]


def test_a_token_made_with_json_is_what_a_gateway_takes_until_it_is_revoked(run, fails, client, token):
    [made] = run("token", "create", token, "--never-ends")
    assert (made["name"], made["ends_ms"]) == (token, None)
    run("grant", "add", f"token:{token}", "--logs", "orders*", "--right", "read,append")
    first = granted_access(client.metadata_store, client.znodes)
    identity = first.identify(made["token"], None, PEER)
    assert (str(identity), identity.token_id) == (f"token:{token}", made["id"])
    assert (first.may_see(identity, "orders-1"), first.may_see(identity, "customers")) == (True, False)
    first.close()
    assert "a token of this name lives" in fails(1, "token", "create", token, "--ends-in-days", "1")
    [revoked] = run("token", "revoke", token)
    assert (revoked["name"], revoked["id"], revoked["state"], revoked["grants"]) == (token, made["id"], "revoked", 2)
    assert named(run("token", "list"), token) == []
    assert "there is no token of this name" in fails(1, "token", "revoke", token)


def test_a_grant_that_stays_after_its_token_is_said_by_whoever_revokes_and_makes_the_next_one(run, token, capsys):
    run("grant", "add", f"token:{token}", "--logs", "orders", "--right", "read")
    assert main(["token", "create", token, "--never-ends"]) == 0
    assert f"it has 1 grants that token:{token} had before: orders" in capsys.readouterr().err
    assert main(["token", "revoke", token]) == 0
    assert f"1 grants of token:{token} stay, and are those of the next token" in capsys.readouterr().err


def test_grants_are_added_listed_and_removed_and_each_says_what_it_changed(run, fails, client, log, token, capsys):
    entry_ledgers(client, log, [1])
    who = f"certificate:{token}"
    [added] = run("grant", "add", who, "--logs", f"{log}*", "--right", "append,read")
    assert (added["granted"], added["had_before"], added["logs_now"]) == (["read", "append"], [], 1)
    [added] = run("grant", "add", who, "--logs", f"{log}*", "--right", "read,manage")
    assert (added["granted"], added["had_before"]) == (["manage"], ["read"])
    run("grant", "add", who, "--logs", "elsewhere", "--right", "read")
    assert run("grant", "list", who) == [
        {"identity": who, "logs": "elsewhere", "rights": ["read"]},
        {"identity": who, "logs": f"{log}*", "rights": ["read", "append", "manage"]},
    ]
    assert [one["logs"] for one in run("grant", "list", "--log", log) if one["identity"] == who] == [f"{log}*"]
    assert main(["grant", "list", who]) == 0
    assert "read,append,manage" in capsys.readouterr().out
    assert "nothing was removed; it has grants for" in fails(1, "grant", "remove", who, "--logs", log)
    assert run("grant", "remove", who, "--logs", f"{log}*", "--right", "read") == [
        {"identity": who, "logs": f"{log}*", "rights": ["read"]}
    ]
    assert main(["grant", "remove", who, "--all"]) == 0
    assert f"3 grants of {who} were removed, 0 are left" in capsys.readouterr().err
    assert run("grant", "list", who) == []


def test_a_grant_for_what_is_not_there_yet_says_so(run, token, capsys):
    assert main(["grant", "add", f"token:{token}", "--logs", "no-such-log", "--right", "read"]) == 0
    err = capsys.readouterr().err
    assert "no log is there now that 'no-such-log' covers" in err
    assert f"there is no token:{token} now" in err


def test_more_grants_than_one_change_takes_are_removed_whole(run, client, token):
    who = f"certificate:{token}"
    for number in range(51):
        run("grant", "add", who, "--logs", f"log-{number:03}", "--right", "read,append")
    assert len(run("grant", "remove", who, "--all")) == 51
    assert run("grant", "list", who) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["token", "create", "a b", "--never-ends"], "is no name of a token: write 1 to 64 letters"),
        (["token", "create", "etl"], "one of the arguments --ends-in-days --never-ends is required"),
        (["token", "create", "etl", "--ends-in-days", "0"], "no number of days from 1 to 36500"),
        (["grant", "add", "etl", "--logs", "*", "--right", "read"], "is no identity: write certificate:NAME"),
        (["grant", "add", "anonymous", "--logs", "*", "--right", "read"], "is no identity"),
        (["grant", "add", "token:a", "--logs", "a*b", "--right", "read"], "a * stands at the end of a pattern alone"),
        (["grant", "add", "token:a", "--logs", "a", "--right", "write"], "'write' is no right: write one or several of"),
        (["grant", "remove", "token:a"], "give --logs PATTERN, or --all"),
        (["grant", "remove", "token:a", "--logs", "a", "--all"], "give --logs PATTERN, or --all"),
    ],
)
def test_what_cannot_be_is_wrong_usage_that_says_what_can(fails, wrong, told):
    assert told in fails(2, *wrong)


def test_an_operator_s_change_is_recorded_with_who_made_it(run, client, token):
    run("grant", "add", f"token:{token}", "--logs", "orders", "--right", "read")
    stored = StoredAccess(client.metadata_store, client.znodes)
    number = stored.read().head.number
    [(_, change)] = stored.changes(number - 1, number)
    assert ("@" in change.by, [one.right for one in change.granted]) == (True, [Right.READ])
