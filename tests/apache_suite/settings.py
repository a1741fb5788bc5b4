"""What Apache's tests set for their bookies, as settings of ours. What has no counterpart is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bk_spark.config import BookieConfig

LOOK_AT_DISKS_S = 0.1
"""Tests wait for a bookie whose disks became full."""


def _seconds(milliseconds: str) -> float:
    return max(0.1, float(milliseconds) / 1000)


def _is_true(text: str) -> bool:
    return text == "true"


def _mebibytes(count: str) -> int:
    return int(count) << 20


_SETTINGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "zkTimeout": ("session_timeout_s", _seconds),
    "gcWaitTime": ("gc_interval_s", _seconds),
    "gcOverreplicatedLedgerWaitTime": ("over_replication_interval_s", _seconds),
    "minorCompactionInterval": ("minor_compaction_interval_s", float),
    "minorCompactionThreshold": ("minor_compaction_threshold", float),
    "majorCompactionInterval": ("major_compaction_interval_s", float),
    "majorCompactionThreshold": ("major_compaction_threshold", float),
    "diskUsageThreshold": ("disk_usage_high", float),
    "journalWriteData": ("journal_write_data", _is_true),
    "journalMaxSizeMB": ("journal_file_bytes", _mebibytes),
    "logSizeLimit": ("entry_log_file_bytes", int),
}
"""Apache's name → ours, and how a value is read."""

_OFF = ("0", "-1")
"""What Apache's tests give to switch something off that ours has always: then our default stays."""


def bookie_config(settings: Mapping[str, str], tls: Mapping[str, str], apache_port: int) -> BookieConfig:
    """``tls`` are PEM files by what they hold: ``key``, ``certificate``, ``ca``.

    Apache's bookies serve clients in clear beside those with TLS, unless an authentication provider refuses them.
    """
    ours: dict[str, Any] = {f"tls_{name}": path for name, path in tls.items()}
    for name, (our_name, read) in _SETTINGS.items():
        if settings.get(name, "") not in ("", *_OFF):
            ours[our_name] = read(settings[name])
    ours["disk_usage_low"] = ours.setdefault("disk_usage_high", 0.99) * 0.99
    return BookieConfig(**ours, disk_check_s=LOOK_AT_DISKS_S, apache_port=apache_port, apache_clear_clients=True)


def metadata_uri(settings: Mapping[str, str]) -> str:
    """Apache's form names the ledger manager in the scheme, and has semicolons between servers."""
    _, _, rest = settings["metadataServiceUri"].partition("://")
    servers, _, root = rest.partition("/")
    return f"zk://{servers.replace(';', ',')}/{root}"


def data_directory(settings: Mapping[str, str]) -> Path:
    """Inside the journal's directory, which is one bookie's, also after a restart."""
    journals = settings.get("journalDirectories") or settings["journalDirectory"]
    return Path(journals.split(",")[0]) / "bk_spark"


def is_read_only(settings: Mapping[str, str]) -> bool:
    """Whether the bookie is to be read-only from the start."""
    return settings.get("forceReadOnlyBookie") == "true"
