"""What a user sets of a tier."""

from __future__ import annotations

from typing import Any

import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.stored.tier_settings import Tier

GOOD = Tier("s3://bucket/orders/", "shop.eu.orders", {"type": "rest", "uri": "http://catalog"}, 60, 0)


def test_settings_are_stored_and_read_as_they_were() -> None:
    assert Tier.decode("the settings", GOOD.encode()) == GOOD
    assert GOOD.location == "s3://bucket/orders"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"location": "/data/orders"}, "the address of a folder"),
        ({"location": "ftp://host/orders"}, "the address of a folder"),
        ({"location": "s3://"}, "the address of a folder"),
        ({"location": 7}, "the address of a folder"),
        ({"location": "file:///data/a?b"}, "the address of a folder"),
        ({"location": "s3://key:hidden@bucket/orders"}, "in the environment"),
        ({"table": "orders"}, "a namespace and a name"),
        ({"table": "shop..orders"}, "a namespace and a name"),
        ({"catalog": {"uri": 7}}, "names to texts"),
        ({"catalog": ["uri"]}, "names to texts"),
        ({"catalog": {"s3.secret-access-key": "x"}}, "in the environment"),
        ({"catalog": {"token": "x"}}, "in the environment"),
        ({"catalog": {"header.X-Api-Key": "x"}}, "in the environment"),
        ({"catalog": {"uri": "postgresql+psycopg2://user:x@host/db"}}, "in the environment"),
        ({"tier_after_s": -1}, "an integer from 0"),
        ({"keep_on_bookies_s": 1.5}, "an integer from 0"),
    ],
    ids=str,
)
def test_what_cannot_be_a_tier_is_refused_in_one_sentence(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        Tier(**{"location": "s3://bucket/orders", "table": "shop.orders", **change})
    assert "\n" not in str(refused.value)
    assert str(refused.value.value) != "x"
    assert "hidden" not in str(refused.value)
