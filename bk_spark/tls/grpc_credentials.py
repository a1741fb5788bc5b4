"""gRPC's credentials, made of the last good content of the TLS files.

gRPC asks for a server's files on its own threads, once for each handshake; the disk is read at most once a second.

Ref: gRPC's ``dynamic_ssl_server_credentials``.
"""

from __future__ import annotations

import grpc

from bk_spark.tls.files import LOOK_S, TlsContent, TlsSource


def server_credentials(source: TlsSource) -> grpc.ServerCredentials:
    """A bookie's credentials. With a CA file every client must show a certificate that one of its authorities signed."""
    used = source.content()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        content = source.content(LOOK_S)
        if content is used:
            return None
        used = content
        return _server_configuration(content)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(used), changed, require_client_authentication=used.ca is not None
    )


def channel_credentials(content: TlsContent) -> grpc.ChannelCredentials:
    """A client's credentials for one channel."""
    return grpc.ssl_channel_credentials(content.ca, content.key, content.certificate)


def _server_configuration(content: TlsContent) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(content.key, content.certificate)], root_certificates=content.ca)
