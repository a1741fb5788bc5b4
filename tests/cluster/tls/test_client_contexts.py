"""Which TLS files new connections to Apache's bookies use while the files are being replaced."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from bk_spark.local.security import Authority
from bk_spark.tls import client_contexts
from bk_spark.tls.client_contexts import ClientContexts
from bk_spark.tls.files import TlsFiles, TlsSource


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = Authority("one")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "client")
    return TlsFiles(str(tmp_path / "ca.pem"), str(tmp_path / "client.pem"), str(tmp_path / "client.key"))


def test_a_context_is_made_anew_when_the_files_change_and_not_before(files: TlsFiles) -> None:
    contexts = ClientContexts(TlsSource(files))
    first = contexts.current()
    assert contexts.current() is first
    Authority("two").save(Path(files.ca))
    second = contexts.current()
    assert second is not first
    assert [one["subject"] for one in second.get_ca_certs()] == [((("commonName", "two"),),)]


def test_the_former_context_stays_in_use_while_the_files_cannot_be_used(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fitted when they were looked at, and were replaced before they were loaded."""
    contexts = ClientContexts(TlsSource(files))
    first = contexts.current()

    def refuse(_: TlsFiles) -> ssl.SSLContext:
        raise ssl.SSLError("key values mismatch")

    Authority("two").save(Path(files.ca))
    with monkeypatch.context() as patched:
        patched.setattr(client_contexts, "client_context", refuse)
        assert contexts.current() is first
        with pytest.raises(ssl.SSLError):
            ClientContexts(TlsSource(files)).current()
    assert contexts.current() is not first
