"""A command's password comes from an argument or from a file's first line."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pytest

from bk_spark.commands.arguments import add_password, password
from bk_spark.datasource.passwords import MAX_PASSWORD_BYTES
from bk_spark.errors import ConfigError


def given(*arguments: str) -> bytes:
    parser = argparse.ArgumentParser()
    add_password(parser, "the password")
    return password(parser.parse_args(arguments))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    return path


def test_the_argument_is_the_password_and_without_one_there_is_none() -> None:
    assert (given(), given("--password", "sésame")) == (b"", "sésame".encode())


@pytest.mark.parametrize("text", [b" open sesame ", b" open sesame \n", b" open sesame \r\nanother line\n"])
def test_the_first_line_of_the_file_is_the_password(file: Path, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file.write_bytes(text)
    assert given("--password-file", str(file)) == b" open sesame "
    assert not caplog.records


def test_a_file_that_other_users_can_read_is_warned_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text("sesame")
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert given("--password-file", str(file)) == b"sesame"
    [record] = caplog.records
    assert str(file) in record.getMessage()
    assert "sesame" not in record.getMessage()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--password-file is '.*/nothing': it cannot be read \(No such file or directory\)"):
        given("--password-file", str(tmp_path / "nothing"))


@pytest.mark.parametrize("text", [b"", b"\nsesame\n", b"x" * (MAX_PASSWORD_BYTES + 1)])
def test_a_file_without_a_password_in_its_first_line_is_refused(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    with pytest.raises(ConfigError, match="its first line must be the password"):
        given("--password-file", str(file))


def test_two_passwords_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        given("--password", "sesame", "--password-file", str(file))
    assert "not allowed with argument --password" in capsys.readouterr().err
