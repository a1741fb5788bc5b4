"""The help of a setting is the text below its field."""

from __future__ import annotations

import dataclasses

import pytest

from bk_spark.commands.arguments import setting_help, setting_texts
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.replication.settings import AutoRecoveryConfig


@pytest.mark.parametrize("config", [AutoRecoveryConfig, BookieConfig, ClientConfig])
def test_every_setting_has_a_text_of_one_line(config: type) -> None:
    texts = setting_texts(config)
    assert sorted(texts) == sorted(field.name for field in dataclasses.fields(config))
    assert [text for text in texts.values() if "\n" in text or text.endswith(".") or not 10 < len(text) < 250] == []


def test_a_text_is_the_first_sentence_with_its_default_and_names_keep_their_capitals() -> None:
    text = setting_help(BookieConfig, "read_threads", "4")
    assert text == "threads that serve reads (default 4)"
    assert setting_texts(BookieConfig)["session_timeout_s"].startswith("ZooKeeper session of the registration: a dead bookie")
    assert "%%" not in "".join(setting_texts(ClientConfig).values())
