"""Python's TLS contexts of a bookie, for its port for Apache's clients. Its other port gives the files to gRPC."""

from __future__ import annotations

import ssl

from bk_spark.tls.files import LOOK_S, TlsContent, TlsFiles, TlsSource


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Shows the bookie's certificate. With a CA file every client must show one that one of its authorities signed.

    Raises OSError (ssl.SSLError is one) if the files cannot be used now.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    if files.ca:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class ServerContexts:
    """The context for new connections, made anew when the files change. On the event loop only."""

    def __init__(self, source: TlsSource) -> None:
        """Raises OSError if the files cannot be used."""
        self._source = source
        self._content: TlsContent = source.content()
        self._context = server_context(source.files)

    def current(self) -> ssl.SSLContext:
        """While the files are being replaced the former context stays in use."""
        content = self._source.content(LOOK_S)
        if content is not self._content:
            try:
                self._context = server_context(self._source.files)
                self._content = content
            except OSError:
                return self._context
        return self._context
