"""What is read from certificates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from bk_spark.local.security import Authority
from bk_spark.tls.certificates import expiries


def saved(path: Path, name: str) -> bytes:
    Authority(name).save(path)
    return path.read_bytes()


def test_each_certificate_of_a_file_has_its_end(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "1.pem", "first"), saved(tmp_path / "2.pem", "second")
    found = expiries(first + second)
    assert [one.subject for one in found] == ["CN=first", "CN=second"]
    (certificate,) = x509.load_pem_x509_certificates(first)
    assert datetime.fromtimestamp(found[0].ends_s, UTC) == certificate.not_valid_after_utc
    assert int(found[0].serial, 16) == certificate.serial_number


def test_a_certificate_that_is_in_a_file_twice_is_told_once_and_its_successor_beside_it(tmp_path: Path) -> None:
    former, later = saved(tmp_path / "1.pem", "ours"), saved(tmp_path / "2.pem", "ours")
    assert len({one.serial for one in expiries(former + later + former)}) == 2
    assert len(expiries(former + later + former)) == 2


def test_an_empty_file_has_none() -> None:
    assert expiries(b"") == []
