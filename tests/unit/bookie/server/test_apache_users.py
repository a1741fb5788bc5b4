"""The file of users of a bookie's port for Apache's clients. Over the wire: tests/cluster/bookie/server/test_apache_sasl.py."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bk_spark.bookie.server.apache.users import ApacheUsers, read
from bk_spark.bookie.server.watched_file import MAX_FILE_BYTES
from bk_spark.errors import ConfigError


def written(directory: Path, content: bytes) -> Path:
    path = directory / "users"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_each_line_is_a_user_and_a_password_as_they_stand(tmp_path: Path) -> None:
    path = written(tmp_path, "# who\n\n  \nann:a:b c \r\nb\u2028b:\u00fc\nc:#".encode())
    assert read(path) == {"ann": "a:b c ", "b\u2028b": "\u00fc", "c": "#"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"ann:x\ns3cret\n", r"line 2 of .*users is \(not shown\): it must be user:password"),
        (b":s3cret\n", "line 1 of .*it must be user:password"),
        (b"s3cret:\n", "line 1 of .*it must be user:password"),
        (b"ann:s3cret\nann:other\n", "line 2 of .*an earlier line has the same user"),
        (b"# nobody\n", r"apache_users \(--apache-users\) is '.*users': it names no user"),
        (b"ann:s3cret\xff\n", "it is no text in UTF-8"),
        (b"ann:s3cret" + b"x" * MAX_FILE_BYTES, "it has more than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_what_is_in_it(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        read(written(tmp_path, content))
    assert "s3cret" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it cannot be read \(No such file or directory\)"):
        ApacheUsers(str(tmp_path / "nowhere"), lambda: 0.0)


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, b"ann:x")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        ApacheUsers(str(path), lambda: 0.0)
    assert f"{path} can be read by everybody on this machine: chmod 600 it" in caplog.text


def test_a_change_is_seen_at_the_next_look_and_looks_are_a_second_apart(tmp_path: Path) -> None:
    now_s = 0.0
    path = written(tmp_path, b"ann:x")
    found = ApacheUsers(str(path), lambda: now_s)
    written(tmp_path, b"bob:longer")
    now_s = 0.9
    assert (found.password_of("ann"), found.password_of("bob")) == ("x", None)
    now_s = 1.0
    assert (found.password_of("ann"), found.password_of("bob")) == (None, "longer")
