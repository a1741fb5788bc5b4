"""Python's TLS contexts of a client, for what does not go through gRPC: connections to ZooKeeper and to Apache's
bookies, and diagnoses."""

from __future__ import annotations

import ssl
from pathlib import Path

from bk_spark.tls.files import TlsContent, TlsFiles, TlsSource


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Trusts the authorities in ``files.ca`` alone, checks the host's name, and shows the client's certificate if there is one.

    Raises OSError (ssl.SSLError is one) if the files cannot be used now.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.ca)
    if files.certificate:
        context.load_cert_chain(files.certificate, files.key)
    return context


def subject_of(files: TlsFiles) -> str:
    """The subject of the client's own certificate. Raises ConfigError if the file cannot be used now."""
    from bk_spark.tls.certificates import check_certificates  # 30 ms that only few need

    path = files.certificate
    return check_certificates("tls_certificate", path, Path(path).read_bytes())[0].subject.rfc4514_string()


class ClientContexts:
    """The context for new connections, made anew when the files change. For one thread, such as an event loop's."""

    def __init__(self, source: TlsSource) -> None:
        self.files = source.files
        self._source = source
        self._content: TlsContent | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """While the files are being replaced the former context stays in use. Raises OSError if there is none yet."""
        content = self._source.content()
        if self._context is None or content is not self._content:
            try:
                self._context = client_context(self.files)
                self._content = content
            except OSError:
                if self._context is None:
                    raise
        return self._context
