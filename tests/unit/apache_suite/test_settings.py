"""Apache's settings as settings of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache_suite.settings import bookie_config, data_directory, is_read_only, metadata_uri


def test_times_and_sizes_are_told_in_our_units() -> None:
    settings = {"zkTimeout": "60000", "gcWaitTime": "1000", "journalMaxSizeMB": "1", "logSizeLimit": "2097152"}
    config = bookie_config(settings, {}, 3181)
    assert (config.session_timeout_s, config.gc_interval_s) == (60.0, 1.0)
    assert (config.journal_file_bytes, config.entry_log_file_bytes) == (1 << 20, 2 << 20)
    assert config.apache_port == 3181


def test_what_a_test_switches_off_keeps_its_default() -> None:
    assert bookie_config({"minorCompactionInterval": "0"}, {}, 1) == bookie_config({}, {}, 1)


def test_the_low_watermark_is_below_the_high_one() -> None:
    config = bookie_config({"diskUsageThreshold": "0.999", "diskUsageWarnThreshold": "0.99"}, {}, 1)
    assert config.disk_usage_low < config.disk_usage_high == 0.999


def test_files_of_tls_are_taken_as_they_are() -> None:
    config = bookie_config({}, {"key": "k", "certificate": "c"}, 1)
    assert (config.tls_key, config.tls_certificate, config.tls_ca) == ("k", "c", "")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("zk://localhost:1/ledgers", "zk://localhost:1/ledgers"),
        ("zk+hierarchical://a:1;b:2/ledgers/x", "zk://a:1,b:2/ledgers/x"),
    ],
)
def test_metadata_uris_are_told_in_our_form(theirs: str, ours: str) -> None:
    assert metadata_uri({"metadataServiceUri": theirs}) == ours


def test_the_first_journal_holds_the_bookie() -> None:
    assert data_directory({"journalDirectories": "/a,/b"}) == Path("/a/bk_spark")
    assert data_directory({"journalDirectory": "/c"}) == Path("/c/bk_spark")


def test_only_force_makes_a_bookie_read_only_from_the_start() -> None:
    assert is_read_only({"forceReadOnlyBookie": "true"})
    assert not is_read_only({"readOnlyModeEnabled": "true"})
