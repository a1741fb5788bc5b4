"""Settings are checked where they are made, by name and with the way out."""

from __future__ import annotations

import pytest

from bk_spark.config import MAX_BATCH_BYTES, MIB, BookieConfig, ClientConfig
from bk_spark.errors import ConfigError


@pytest.mark.parametrize("rack", ["/default-rack", "/zone-a/rack-1", "/" + "x" * 255])
def test_a_rack_is_a_path(rack: str) -> None:
    assert BookieConfig(rack=rack).rack == rack


@pytest.mark.parametrize("rack", ["", "rack", "/", "/a/", "//a", "/a b", "/a\n", "/" + "x" * 256, 7, None])
def test_a_rack_that_is_no_path_is_refused(rack: object) -> None:
    with pytest.raises(ConfigError, match=r"rack is .*: it must look like /zone/rack"):
        BookieConfig(rack=rack)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, True, "1"])
def test_a_number_that_is_not_above_0_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"read_threads is .*: it must be a number above 0"):
        BookieConfig(read_threads=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_number_that_no_clock_can_hold_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=r"read_timeout_s is .*: it must be a number above 0"):
        ClientConfig(read_timeout_s=value)


def test_a_count_is_a_whole_number() -> None:
    with pytest.raises(ConfigError, match=r"quarantine_errors is 1.5: it must be a whole number"):
        ClientConfig(quarantine_errors=1.5)  # type: ignore[arg-type]
    assert ClientConfig(read_timeout_s=2).read_timeout_s == 2


@pytest.mark.parametrize("port", [-2, 65_536, 1.5, "80", True])
def test_an_http_port_that_is_none_is_refused_by_its_name(port: object) -> None:
    with pytest.raises(ConfigError, match=r"http_port.*0 for a free one, or -1 for none"):
        BookieConfig(http_port=port)  # type: ignore[arg-type]


@pytest.mark.parametrize("port", [-1, 0, 65_535])
def test_an_http_port_may_be_none_free_or_given(port: int) -> None:
    assert BookieConfig(http_port=port).http_port == port


@pytest.mark.parametrize("settings", [{"waiting_add_bytes": MAX_BATCH_BYTES}, {"memory_limit_bytes": 256 * MIB}])
def test_memory_that_has_no_room_for_what_a_bookie_must_hold_is_refused(settings: dict[str, int]) -> None:
    [name] = settings
    with pytest.raises(ConfigError, match=name):
        BookieConfig(**settings)
