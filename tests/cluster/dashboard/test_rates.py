"""Counters over HTTP."""

from __future__ import annotations

from bk_spark.dashboard.rates import scrape
from bk_spark.telemetry.http_endpoint import HttpEndpoint, text_response


def test_an_address_that_answers_nothing_useful_gives_no_counters() -> None:
    with HttpEndpoint("127.0.0.1", 0, {"/metrics": lambda _: text_response(500, "adds_total 7")}) as endpoint:
        assert scrape(f"127.0.0.1:{endpoint.port}", 0.0) is None
        port = endpoint.port
    assert scrape(f"127.0.0.1:{port}", 0.0) is None
