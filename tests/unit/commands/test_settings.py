"""A bookie's settings: command line before file before default, and nothing that is misspelt passes."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from bk_spark.commands.arguments import add_security
from bk_spark.commands.settings import add_settings, bookie_config
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import bookie_command


def parsed(*arguments: str) -> BookieConfig:
    parser = argparse.ArgumentParser()
    add_security(parser)
    add_settings(parser)
    return bookie_config(parser.parse_args(arguments))


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "bookie.toml").write_text(text)
    return str(tmp_path / "bookie.toml")


def test_without_options_all_settings_are_the_defaults() -> None:
    assert parsed() == BookieConfig()


def test_every_setting_has_an_option_of_its_name() -> None:
    for field in dataclasses.fields(BookieConfig):
        if field.name.startswith("tls_") or field.name.endswith("_auth") or field.name == "members":
            continue  # they go together, and credentials are in no argument: below
        named = {"http_host": "::1"}.get(field.name, "/x")
        value = {bool: not field.default, str: named}.get(type(field.default), field.default)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert getattr(parsed("--" + field.name.replace("_", "-"), text), field.name) == value


def test_tls_and_the_credential_are_settings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auth").write_text("digest:ann:in-a-file\n")
    (tmp_path / "auth").chmod(0o600)
    files = ("--tls-ca", "ca", "--tls-certificate", "certificate", "--tls-key", "key")
    found = parsed(*files, "--zookeeper-auth-file", str(tmp_path / "auth"))
    assert (found.tls_ca, found.tls_certificate, found.tls_key) == ("ca", "certificate", "key")
    assert found.zookeeper_auth == "digest:ann:in-a-file"
    monkeypatch.setenv("BK_SPARK_ZOOKEEPER_AUTH", "digest:ann:in-the-environment")
    assert parsed().zookeeper_auth == "digest:ann:in-the-environment"
    assert parsed("--zookeeper-auth-file", str(tmp_path / "auth")).zookeeper_auth == "digest:ann:in-a-file"
    with pytest.raises(ConfigError, match="not shown") as refused:
        parsed("--zookeeper-auth", "digest:ann:in-ps")
    assert "in-ps" not in str(refused.value)


def test_the_credential_for_apaches_bookies_is_a_setting_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auth").write_text("sasl:ann:in:a-file\n")
    (tmp_path / "auth").chmod(0o600)
    assert parsed("--bookie-auth-file", str(tmp_path / "auth")).bookie_auth == "sasl:ann:in:a-file"
    monkeypatch.setenv("BK_SPARK_BOOKIE_AUTH", "sasl:ann:in-the-environment")
    found = parsed()
    assert found.bookie_auth == found.client_config().bookie_auth == "sasl:ann:in-the-environment"
    assert parsed("--bookie-auth-file", str(tmp_path / "auth")).bookie_auth == "sasl:ann:in:a-file"
    with pytest.raises(ConfigError, match=r"--bookie-auth-file is \(not shown\)") as refused:
        parsed("--bookie-auth-file", "sasl:ann:in-ps")
    assert "in-ps" not in str(refused.value)
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="it is empty: write sasl:user:password into it"):
        parsed("--bookie-auth-file", str(tmp_path / "empty"))


def test_members_are_given_with_what_they_show() -> None:
    assert parsed("--members", "/members", "--apache-users", "/users").members == "/members"


def test_members_need_a_way_to_show_who_they_are() -> None:
    with pytest.raises(ConfigError, match="members is '/members': without tls_ca and apache_users nobody shows who it is"):
        BookieConfig(members="/members")


def test_a_file_of_users_needs_the_port_that_they_are_for() -> None:
    with pytest.raises(ConfigError, match="apache_users is '/users': it is of no use without apache_port"):
        BookieConfig(apache_users="/users", apache_port=-1)


def test_no_secret_is_in_the_command_that_starts_a_bookie_nor_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    secrets = {"zookeeper_auth": "digest:ann:s3cret", "bookie_auth": "sasl:ann:s3cret"}
    config = BookieConfig(**secrets, tls_certificate="c.pem", tls_key="c.key")
    command = " ".join(bookie_command(tmp_path, "zk://a:1/b", 1, config))
    assert "--tls-certificate c.pem --tls-key c.key" in command
    assert "s3cret" not in command + repr(config) + repr(config.client_config())
    for text in (f"{name} = {wrong}" for name in secrets for wrong in ("'ann-s3cret'", "['s3cret']")):
        with pytest.raises(ConfigError, match="not shown") as refused:
            parsed("--config", written(tmp_path, text))
        assert "s3cret" not in str(refused.value)
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        with pytest.raises(ConfigError, match=f"--zookeeper-auth-file is .*{name}"):
            parsed("--zookeeper-auth-file", str(tmp_path / name))


def test_a_truth_is_spelled_true_or_false(capsys: pytest.CaptureFixture[str]) -> None:
    """A type of bool would take any text, "false" too, for true."""
    assert parsed("--journal-write-data", "false").journal_write_data is False
    assert parsed("--journal-write-data", "true").journal_write_data is True
    for text in ("False", "0", "no", ""):
        with pytest.raises(SystemExit) as ended:
            parsed("--journal-write-data", text)
        assert ended.value.code == 2
    assert "is neither true nor false" in capsys.readouterr().err


def test_a_file_goes_before_the_defaults_and_an_option_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'gc_interval_s = 60\njournal_write_data = false\njournal_dirs = "/nvme"\nread_threads = 7\n')
    found = parsed("--config", path, "--read-threads", "2", "--journal-write-data", "true")
    assert found == BookieConfig(gc_interval_s=60, journal_dirs="/nvme", read_threads=2)
    assert parsed("--config", path).journal_write_data is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gc_intervall_s = 60", "is 'gc_intervall_s': there is none of this name, there are direct_add_bytes"),
        ('read_threads = "7"', "read_threads is '7'"),
        ("read_threads = 1.5", "read_threads is 1.5"),
        ("journal_write_data = 1", "journal_write_data is 1: it must be true or false"),
        ('journal_dirs = ["/a"]', "must be a text in quotation marks"),
        ("[bookie]\nread_threads = 7", "is 'bookie': there is none of this name"),
        ("read_threads", "it is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed("--config", written(tmp_path, text))
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["8m", "8M", "8mb", "8 MiB", "8192k", "8388608"])
def test_a_size_has_a_unit_or_is_in_bytes_on_the_command_line_and_in_the_file(tmp_path: Path, text: str) -> None:
    assert parsed("--write-cache-bytes", text).write_cache_bytes == 8 * MIB
    config = written(tmp_path, f'write_cache_bytes = "{text}"\nscrub_bytes_per_s = "{text}"')
    assert (parsed("--config", config).write_cache_bytes, parsed("--config", config).scrub_bytes_per_s) == (8 * MIB, 8 * MIB)


def test_what_is_no_size_is_refused_in_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "'8 mega' is not a size, such as 65536, 64m or 10g"
    with pytest.raises(SystemExit):
        parsed("--write-cache-bytes", "8 mega")
    assert words in capsys.readouterr().err
    with pytest.raises(ConfigError, match=words):
        parsed("--config", written(tmp_path, 'write_cache_bytes = "8 mega"'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.toml'.*it cannot be read"):
        parsed("--config", str(tmp_path / "missing.toml"))


def test_a_local_clusters_bookies_are_started_with_the_settings_that_differ() -> None:
    config = BookieConfig(journal_write_data=False, gc_interval_s=1.5, ledger_dirs="/a,/b")
    command = bookie_command(Path("/d"), "zk://h:1/l", 7, config)
    assert parsed(*command[command.index("--port") + 2 :]) == config
    assert bookie_command(Path("/d"), "zk://h:1/l", 7, BookieConfig())[-2:] == ["--port", "7"]
