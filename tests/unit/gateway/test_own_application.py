"""Under which ids a log keeps the applications of callers."""

from __future__ import annotations

from itertools import combinations

from bk_spark.gateway.calls.appends import own_application
from bk_spark.gateway.rights import ANONYMOUS, CallerIdentity

NAMES = ["org", "org/team", "org/team/loader", "org%2Fteam", "org%", "org team", "ö"]
IDS = ["job", "loader/job", "team/loader/job", "/job", "%2Fteam/job"]


def test_ids_of_no_two_callers_are_the_same() -> None:
    callers = [CallerIdentity(kind, name) for kind in ("certificate", "token") for name in NAMES]
    kept = {one: {own_application(one, (name, 1)) for name in IDS} for one in callers}
    assert all(len(ids) == len(IDS) for ids in kept.values())
    assert all(kept[one].isdisjoint(kept[other]) for one, other in combinations(callers, 2))


def test_identity_stands_before_the_id_as_it_is_granted() -> None:
    assert own_application(CallerIdentity("token", "etl"), ("loader", 7)) == ("token:etl/loader", 7)
    assert own_application(CallerIdentity("token", "etl"), None) is None
    assert own_application(ANONYMOUS, ("loader", 7)) == ("loader", 7)
