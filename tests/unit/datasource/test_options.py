"""The option table: what Spark's users may say, and what they are told when they may not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bk_spark.config import MIB, ClientConfig, DigestType
from bk_spark.datasource.option_table import OPTIONS
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.datasource.passwords import as_option
from bk_spark.errors import ConfigError

URI = "zk://127.0.0.1:2181/ledgers"


def parse(**options: str) -> SourceOptions:
    return parse_options({"metadata": URI, "path": "orders", **options}, {})


def test_defaults_of_the_table_are_those_of_the_options() -> None:
    defaults = SourceOptions(metadata=URI, path="orders")
    for option in OPTIONS:
        if option.default and option.default[0] not in "($" and option.name != "startingOffsets":
            assert option.parse(option.name, option.default) == getattr(defaults, option.attribute), option.name


def test_options_arrive_lower_cased_and_are_parsed() -> None:
    options = parse_options({"METADATA": URI, "path": "orders", "maxbytesperpartition": "64m", "digesttype": "hmac"}, {})
    assert (options.max_bytes_per_partition, options.digest_type) == (64 * MIB, DigestType.HMAC)


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", MIB), ("1m", MIB), ("1MB", MIB), ("1 MiB", MIB), ("2K", 2048), ("1g", 1024 * MIB)]
)
def test_sizes_are_bytes_or_have_a_binary_suffix(text: str, size: int) -> None:
    assert parse(maxBytesPerPartition=text).max_bytes_per_partition == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxBytesPerPartition", "0"),
        ("maxBytesPerPartition", "many"),
        ("maxBytesPerPartition", "-1"),
        ("maxBytesPerPartition", "9" * 30),
        ("maxBytesPerEntry", "9m"),
        ("maxRowsPerEntry", "0"),
        ("ensembleSize", "three"),
        ("ackQuorum", "0"),
        ("minPartitions", "1e3"),
        ("includeMetadata", "yes"),
        ("compression", "gzip"),
        ("content", "row"),
        ("digestType", "MD5"),
        ("versionAsOf", "-1"),
        ("applicationId", ""),
        ("client.add_timeout_s", "soon"),
        ("client.add_timeout_s", "nan"),
        ("client.read_ahead_requests", "1.5"),
        ("client.delay_ensemble_change", "1"),
        ("recover", "yes"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"version": 3}'),
        ("endingOffsets", "7"),
        ("endingOffsets", "earliest"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "1767225600"),
        ("startingTimestamp", "20260101"),
        ("timestampAsOf", "2026"),
        ("timestampAsOf", "2026-02-30"),
        ("timeZone", "Berlin"),
        ("timeZone", ""),
        ("maxRowsPerTrigger", "0"),
        ("maxBytesPerTrigger", "some"),
        ("failOnDataLoss", "no"),
        ("overwrites", "ignore"),
        ("cursorName", ""),
        ("where", "a = 1 XOR b = 2"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**{name: value})
    assert f"option '{name}' is {value!r}" in str(refused.value)


def test_an_unknown_option_is_refused_and_the_nearest_one_named() -> None:
    with pytest.raises(ConfigError, match=r"'ensemblesise'.*nearest is 'ensembleSize'"):
        parse(ensemblesise="3")
    with pytest.raises(ConfigError, match=r"nearest is 'client\.add_timeout_s'"):
        parse(**{"client.add_timeout": "3"})


def test_security_is_the_clients_and_named_once() -> None:
    options = parse(tlsCa="/ca", tlsCertificate="/c", tlsKey="/k", zookeeperAuth="digest:a:b")
    assert options.client == ClientConfig(tls_ca="/ca", tls_certificate="/c", tls_key="/k", zookeeper_auth="digest:a:b")
    with pytest.raises(ConfigError, match=r"'client.zookeeper_auth': give it as 'zookeeperAuth'"):
        parse(**{"client.zookeeper_auth": "digest:a:b"})
    with pytest.raises(ConfigError, match=r"tls_certificate \(tlsCertificate, .* is '/c': it is of no use without tls_key"):
        parse(tlsCa="/ca", tlsCertificate="/c")
    with pytest.raises(ConfigError, match=r"is '/c': .*without tls_ca \(tlsCa"):
        parse(tlsCertificate="/c", tlsKey="/k")


def test_the_credential_may_come_from_the_environment_and_an_option_goes_before_it() -> None:
    environment = {"BK_SPARK_METADATA": URI, "BK_SPARK_ZOOKEEPER_AUTH": "digest:a:outside"}
    assert parse_options({"path": "orders"}, environment).client.zookeeper_auth == "digest:a:outside"
    given = {"path": "orders", "zookeeperauth": "digest:a:given"}
    assert parse_options(given, environment).client.zookeeper_auth == "digest:a:given"


@pytest.mark.parametrize(
    "wrong", ["s3cret", "digest:s3cret", "sasl:s3cret", "world:s3cret", "Digest:s3cret", "digest:a:s3cret\n"]
)
def test_a_credential_is_in_no_text(wrong: str) -> None:
    options = parse(zookeeperAuth="digest:a:s3cret")
    assert "s3cret" not in repr(options) + repr(options.client)
    with pytest.raises(ConfigError, match=r"zookeeperAuth.* is .not shown.: it must be scheme:credential") as refused:
        parse(zookeeperAuth=wrong)
    assert "s3cret" not in str(refused.value) + repr(refused.value)


def test_the_credential_for_apaches_bookies_is_an_option_or_comes_from_the_environment() -> None:
    assert parse(bookieAuth="sasl:a:b:c").client.bookie_auth == "sasl:a:b:c"
    environment = {"BK_SPARK_METADATA": URI, "BK_SPARK_BOOKIE_AUTH": "sasl:a:outside"}
    assert parse_options({"path": "orders"}, environment).client.bookie_auth == "sasl:a:outside"
    assert parse_options({"path": "orders", "bookieauth": "sasl:a:given"}, environment).client.bookie_auth == "sasl:a:given"
    with pytest.raises(ConfigError, match=r"'client.bookie_auth': give it as 'bookieAuth'"):
        parse(**{"client.bookie_auth": "sasl:a:b"})


@pytest.mark.parametrize(
    "wrong",
    ["s3cret", "sasl:s3cret", "digest:a:s3cret", "sasl:a b:s3cret", "sasl:\u00e9:s3cret", "sasl::s3cret", "sasl:a:s3cret\n"],
)
def test_a_credential_for_apaches_bookies_is_in_no_text(wrong: str) -> None:
    options = parse(bookieAuth="sasl:a:s3cret")
    assert "s3cret" not in repr(options) + repr(options.client)
    with pytest.raises(ConfigError, match=r"bookieAuth.* is .not shown.: it must be sasl:user:password") as refused:
        parse(bookieAuth=wrong)
    assert "s3cret" not in str(refused.value) + repr(refused.value)


def test_what_a_catalog_table_passes_along_is_ignored() -> None:
    own = {"provider": "bookkeeper", "owner": "root", "location": "x", "external": "true", "option.path": "orders"}
    assert parse(**own).given == {"metadata", "path"}


def test_the_client_is_configured_by_its_fields() -> None:
    options = parse(**{"client.add_timeout_s": "2.5", "client.add_window_bytes": "8m", "client.delay_ensemble_change": "true"})
    assert options.client == ClientConfig(add_timeout_s=2.5, add_window_bytes=8 * MIB, delay_ensemble_change=True)


def test_metadata_may_come_from_the_environment() -> None:
    assert parse_options({"path": "orders"}, {"BK_SPARK_METADATA": URI}).metadata == URI
    with pytest.raises(ConfigError, match="BK_SPARK_METADATA"):
        parse_options({"path": "orders"}, {})


@pytest.mark.parametrize(("text", "ids"), [("7", (7,)), ("3,5", (3, 5)), ("3-6", (3, 4, 5, 6)), ("9, 1-2", (9, 1, 2))])
def test_ledgers_are_named_by_id_list_and_range(text: str, ids: tuple[int, ...]) -> None:
    assert parse_options({"metadata": URI, "ledger": text}, {}).ledger == ids


@pytest.mark.parametrize("text", ["", "a", "3,", "5-3", "1,1", "-1", "0-99999999"])
def test_a_bad_list_of_ledgers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="option 'ledger'"):
        parse_options({"metadata": URI, "ledger": text}, {})


def test_a_log_and_ledgers_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="one of the two"):
        parse(ledger="7")
    with pytest.raises(ConfigError, match="must name the log"):
        parse_options({"metadata": URI}, {})


def test_more_acks_than_replicas_are_refused() -> None:
    with pytest.raises(ConfigError, match="writeQuorum"):
        parse(ensembleSize="2").check_use("batch write")


def test_an_option_that_does_not_apply_to_the_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'ensembleSize'.*does not apply to a batch read"):
        parse(ensembleSize="5").check_use("batch read")
    with pytest.raises(ConfigError, match=r"'versionAsOf'.*does not apply to a batch write"):
        parse(versionAsOf="5").check_use("batch write")
    parse(ensembleSize="5", password="x").check_use("batch write")


@pytest.mark.parametrize(
    ("options", "use", "others"),
    [
        ({"maxRowsPerTrigger": "5"}, "stream read", ["batch read", "batch write", "stream write"]),
        ({"versionAsOf": "5"}, "batch read", ["stream read", "batch write", "stream write"]),
        ({"applicationId": "a", "applicationVersion": "5"}, "batch write", ["stream write", "batch read", "stream read"]),
        ({"checkpointLocation": "/tmp/x"}, "stream write", ["stream read", "batch write", "batch read"]),
        ({"queryName": "x"}, "stream write", ["batch write"]),
    ],
)
def test_an_option_of_streams_or_batches_does_not_apply_to_the_other(options, use, others) -> None:
    parse(**options).check_use(use)
    for other in others:
        with pytest.raises(ConfigError, match=f"does not apply to a {other}: it belongs to a {use}"):
            parse(**options).check_use(other)


def test_an_option_passes_if_it_applies_to_one_of_several_uses() -> None:
    parse(maxRowsPerTrigger="5").check_use("batch read", "stream read")
    parse(versionAsOf="5").check_use("batch read", "stream read")
    with pytest.raises(ConfigError, match="does not apply to a batch read"):
        parse(mergeSchema="true").check_use("batch read", "stream read")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"startingOffsets": "earliest"}, {"startingTimestamp": "1767225600000"}),
        ({"endingOffsets": "latest"}, {"versionAsOf": "5"}),
        ({"versionAsOf": "5"}, {"timestampAsOf": "1767225600000"}),
    ],
)
def test_a_read_starts_and_ends_at_one_place_each(first, second) -> None:
    parse(**first)
    parse(**second)
    with pytest.raises(ConfigError, match=f"'{next(iter(first))}' says where too: give one of the two"):
        parse(**first, **second)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"view": "newest"}, "option 'view' is 'newest': it must be"),
        ({"deletedBy": "gone"}, "option 'deletedBy' is 'gone': it only works with option 'view' set to 'latest'"),
        ({"view": "latest", "content": "entries"}, "option 'view' is 'latest': it does not apply to entries"),
        ({"view": "latest", "startingOffsets": "earliest"}, "'startingOffsets'.* does not apply to view=latest: leave it out"),
        ({"view": "latest", "endingOffsets": "latest"}, "'endingOffsets'.* does not apply to view=latest: .* versionAsOf"),
        ({"view": "latest", "startingTimestamp": "1767225600000"}, "'startingTimestamp'.* does not apply to view=latest"),
    ],
)
def test_the_newest_rows_are_those_of_one_version_of_a_log_of_rows(options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(**options)
    with pytest.raises(ConfigError, match=r"option 'view' is 'latest': it does not apply to several logs, .* use union\(\)"):
        parse_options({"metadata": URI, "logs": "a,b", "view": "latest"}, {})


@pytest.mark.parametrize("name", ["versionAsOf", "timestampAsOf", "endingOffsets", "startingTimestamp"])
def test_ledgers_have_neither_versions_nor_times(name) -> None:
    value = "latest" if name.endswith("Offsets") else "1767225600000"
    with pytest.raises(ConfigError, match=f"'{name}'.*does not apply to ledgers"):
        parse_options({"metadata": URI, "ledger": "7", name: value}, {})


@pytest.mark.parametrize(
    ("text", "zone", "milliseconds"),
    [
        ("1767225600000", None, 1767225600000),
        ("1767225600000", "Europe/Berlin", 1767225600000),
        ("2026-01-01", "UTC", 1767225600000),
        ("2026-01-01", "Europe/Berlin", 1767222000000),
        ("2026-01-01 00:00:00.001999", "+00:00", 1767225600001),
        ("2026-01-01T01:00:00+01:00", None, 1767225600000),
        ("2025-12-31T23:59:59.999Z", "Asia/Tokyo", 1767225599999),
    ],
)
def test_times_are_in_the_zone_that_they_or_an_option_name(text, zone, milliseconds) -> None:
    options = {} if zone is None else {"timeZone": zone}
    assert parse(timestampAsOf=text, **options).timestamp_as_of == milliseconds
    assert parse(startingTimestamp=text, **options).starting_timestamp == milliseconds


@pytest.mark.parametrize("name", ["timestampAsOf", "startingTimestamp"])
@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01 12:00:00"])
def test_a_time_without_an_offset_is_refused_where_no_zone_is_named(name, text) -> None:
    """Spark does not tell a format the session's time zone."""
    with pytest.raises(ConfigError) as refused:
        parse(**{name: text})
    assert f"option '{name}' is '{text}': it names no offset from UTC" in str(refused.value)
    assert "write it like 2026-01-31T23:59:59Z or" in str(refused.value)
    assert "or name the zone in option 'timeZone'" in str(refused.value)


def test_a_batch_read_does_not_start_at_the_end() -> None:
    parse(startingOffsets="latest").check_use("stream read")
    with pytest.raises(ConfigError, match="only a stream starts there"):
        parse(startingOffsets="latest").check_use("batch read")


def test_an_offset_is_taken_as_a_stream_reports_it() -> None:
    offset = '{"entry":12,"index":3,"ledger":7,"log":"abc","version":41}'
    assert parse(startingOffsets=offset).starting_offsets == offset
    assert parse(startingOffsets="Earliest").starting_offsets == "earliest"
    assert parse().starting_offsets is None


def test_recovery_is_for_reads_and_off_by_default() -> None:
    assert parse(recover="true").recover
    assert not parse().recover
    with pytest.raises(ConfigError, match=r"'recover'.*does not apply to a batch write"):
        parse(recover="true").check_use("batch write")


def test_an_option_of_rows_does_not_apply_to_entries() -> None:
    with pytest.raises(ConfigError, match=r"'compression'.*does not apply to entries"):
        parse(content="entries", compression="lz4")


def test_half_an_application_is_refused() -> None:
    with pytest.raises(ConfigError, match="only work together"):
        parse(applicationId="nightly")
    assert parse(applicationId="nightly", applicationVersion="7").application_version == 7


def test_the_password_is_in_no_text() -> None:
    options = parse(password="s3cret", content="entries")
    assert options.password == b"s3cret"
    assert "s3cret" not in repr(options)
    with pytest.raises(ConfigError) as refused:
        parse(password="s3cret", ledger="1")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("sésame", "sésame".encode()), ("0xff00C3", b"\xff\x00\xc3"), ("0X41", b"0X41"), ("ff00c3", b"ff00c3")],
)
def test_a_password_is_text_or_the_bytes_behind_0x(text: str, expected: bytes) -> None:
    assert parse(password=text).password == expected


def test_every_password_has_a_spelling_as_an_option() -> None:
    for given in (b"\xff\x00\xc3", b"0x41", b"\n", bytes(range(256))):
        assert parse(password=as_option(given)).password == given


@pytest.mark.parametrize("text", ["0x", "0x4", "0xsesame", "0x41 42"])
def test_what_begins_with_0x_and_is_not_hexadecimal_is_refused_without_being_shown(text: str) -> None:
    sentence = "pairs of hexadecimal digits; give a text that begins so with 'passwordFile'"
    with pytest.raises(ConfigError, match=rf"option 'password' is \(not shown\): .*{sentence}"):
        parse(password=text)


def test_a_password_of_any_bytes_comes_from_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_bytes(b"0x\xff\x00\nanother line\n")
    options = parse(passwordFile=str(file))
    assert options.password == b"0x\xff\x00"
    assert repr(options.password)[2:-1] not in repr(options)
    with pytest.raises(ConfigError, match=r"option 'passwordFile' is '.*': 'password' gives one too"):
        parse(passwordFile=str(file), password="x")
    with pytest.raises(ConfigError, match=r"option 'passwordFile' is '.*nothing': it cannot be read"):
        parse(passwordFile=str(tmp_path / "nothing"))


def test_options_pickle_with_reader_and_writer() -> None:
    options = parse(password="x", minPartitions="4")
    assert pickle.loads(pickle.dumps(options)) == options


def several(**options: str) -> SourceOptions:
    return parse_options({"metadata": URI, **options}, {})


def test_several_logs_are_a_list_a_list_of_load_or_a_pattern() -> None:
    assert several(logs="b, a,c").logs == ("b", "a", "c")
    assert several(paths='["x,y", " z"]').logs == ("x,y", " z")
    assert several(logsPattern="orders-.*").logs_pattern == "orders-.*"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"logs": "a,,b"}, "'a,,b': it must be names of logs, such as a,b,c: one of them is empty"),
        ({"logs": "a,b,a"}, "it names log 'a' twice"),
        ({"logs": ",".join(map(str, range(1001)))}, "is a list of 1001 logs: one read takes 1000 logs at most"),
        ({"paths": "a,b"}, "option 'path' is 'a,b': it must be a list of names"),
        ({"paths": '["a"]', "logs": "b"}, r"load\(\[…\]\) names logs too"),
        ({"logsPattern": "(a"}, "option 'logsPattern' is '\\(a': it must be a regular expression of Python: missing"),
        ({"logsPattern": "a" * 1001}, "it must have 1 to 1000 characters"),
        ({"logsPattern": "a{99999999999}"}, "it must be a regular expression"),
        ({"logsPattern": ""}, "it must have 1 to 1000 characters"),
        ({"path": "x", "logs": "a,b"}, "option 'logs' is .*: option 'path' names what to read or write too, 'x'"),
        ({"path": "x", "logsPattern": "a.*"}, "option 'logsPattern' is 'a.*': option 'path' names"),
        ({"logs": "a,b", "logsPattern": "a.*"}, "option 'logsPattern' is 'a.*': option 'logs' names"),
        ({"logs": "a,b", "ledger": "3"}, "option 'ledger' is .*: option 'logs' names"),
        (
            {"logs": "a,b", "versionAsOf": "3"},
            "option 'versionAsOf' is 3: it does not apply to several logs: each has versions",
        ),
        ({"logs": "a,b", "endingOffsets": "latest"}, "option 'endingOffsets' is 'latest': it does not apply to several logs"),
    ],
)
def test_what_several_logs_cannot_be_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        several(**options)


def test_times_apply_to_each_of_several_logs() -> None:
    assert several(logs="a,b", timestampAsOf="2026-01-01T00:00:00Z", startingTimestamp="0").timestamp_as_of == 1767225600000


def test_a_stream_of_several_logs_has_a_start_and_a_batch_of_them_has_none() -> None:
    offset = '{"format":1,"logs":{}}'
    for start in ("earliest", "latest", offset):
        given = several(logs="a,b", startingOffsets=start)
        given.check_use("stream read")
        with pytest.raises(ConfigError, match=r"option 'startingOffsets' is .*: it does not apply to several logs"):
            given.check_use("batch read")


@pytest.mark.parametrize(("options", "name"), [({"logs": "a,b"}, "logs"), ({"logsPattern": "a.*"}, "logsPattern")])
def test_a_write_is_of_one_log(options: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{name}' is .*: it does not apply to a batch write"):
        several(**options).check_use("batch write")


@pytest.mark.parametrize(("environment", "missing"), [({}, "metadata"), ({"BK_SPARK_METADATA": URI}, "path")])
def test_a_use_without_options_says_that_spark_drops_those_of_a_catalog_table(
    environment: dict[str, str], missing: str
) -> None:
    for of_spark in ({}, {"provider": "bookkeeper", "owner": "me"}):
        with pytest.raises(ConfigError, match=rf"option '{missing}' is missing: .*as for a catalog table .* WITH \('metadata'"):
            parse_options(of_spark, environment)


def test_a_use_with_some_options_is_no_catalog_table() -> None:
    for given, missing in (({"path": "orders"}, "metadata"), ({"metadata": URI}, "path")):
        with pytest.raises(ConfigError, match=f"option '{missing}' is missing") as refused:
            parse_options(given, {})
        assert "catalog" not in str(refused.value)
