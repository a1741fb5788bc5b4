"""``bk-spark gateway``."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING

from bk_spark.commands.arguments import Commands, add_log_option, command, host, plain_text, port
from bk_spark.commands.connect import check_metadata_given, client_config, metadata_uri
from bk_spark.commands.output import print_record, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.program.process import StopSignal
from bk_spark.commands.settings import add_fields, given_fields, with_options
from bk_spark.config import MIB
from bk_spark.errors import ConfigError
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.host_port import HostPort
from bk_spark.telemetry.logging_setup import set_up_audit_log, set_up_logging

if TYPE_CHECKING:
    from bk_spark.gateway.access import Access
    from bk_spark.tls.files import TlsSource

DEFAULT_PORT = 8815
"""That of Arrow Flight's own examples."""

READ_BYTES = MIB
"""``read_batch_bytes`` of the gateway's client: a process with one reader gains by larger requests, one with fifty pays with
memory for each."""

ABOUT = (
    "Serve the cluster's logs over Arrow Flight, to programs in any language that are no members of the cluster: list, read, "
    "tail, append, look up. Several gateways may run side by side: none of them keeps anything. Callers show a token or a "
    "certificate, and may do what was granted to it ('bk-spark token list', 'bk-spark grant list'). The gateway listens on "
    "this machine alone unless --host says otherwise, and then it needs --serve-certificate and --serve-key."
)

_SERVED = {
    "tls_certificate (tlsCertificate, --tls-certificate)": "--serve-certificate",
    "tls_key (tlsKey, --tls-key)": "--serve-key",
    "tls_ca (tlsCa, --tls-ca)": "--serve-client-ca",
}
"""What the same kind of file is called here."""


def add(commands: Commands) -> None:
    parser = command(commands, "gateway", "serve the cluster's logs over Arrow Flight", _run)
    parser.description = ABOUT
    text = "the address to listen at; another than this machine's own needs TLS (default %(default)s)"
    parser.add_argument("--host", type=host, default="127.0.0.1", help=text)
    text = "the port; 0 takes a free one (default %(default)s)"
    parser.add_argument("--port", type=port, default=DEFAULT_PORT, metavar="P", help=text)
    text = "let whoever reaches the address do everything, without tokens and grants"
    parser.add_argument("--open", action="store_true", help=text)
    text = "a URI that readers are sent to, such as grpc+tls://logs:8815; several times for several (default: where they asked)"
    parser.add_argument("--location", action="append", type=plain_text, metavar="URI", help=text)
    serve = parser.add_argument_group("certificates for callers", "PEM files; they are read again when they change")
    serve.add_argument("--serve-certificate", metavar="FILE", help="the gateway's certificate, with its chain")
    serve.add_argument("--serve-key", metavar="FILE", help="its private key, without a passphrase")
    text = "authorities of callers: each must show a certificate that one of them signed, whose name says who it is"
    serve.add_argument("--serve-client-ca", metavar="FILE", help=text)
    parser.add_argument("--audit-log", metavar="FILE", help="a file for the audit log (default: the log, on stderr)")
    parser.add_argument(
        "--http-host", type=host, default="127.0.0.1", metavar="HOST", help="where --http-port listens (default %(default)s)"
    )
    add_log_option(parser)
    settings = parser.add_argument_group("settings", "sizes in bytes or such as 64m, times in seconds")
    add_fields(settings, GatewayConfig, lambda default: f"{default:.12g}")


def _run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    check_metadata_given(args)
    config = with_options(lambda given: GatewayConfig(**given), given_fields(args, GatewayConfig))
    _check(args)
    set_up_logging(args.log_json)
    if args.audit_log:
        set_up_audit_log(args.audit_log, args.log_json)
    stopped = StopSignal()

    from bk_spark.bookkeeper import BookKeeper
    from bk_spark.gateway.granted_access import granted_access
    from bk_spark.gateway.http import http_endpoint
    from bk_spark.gateway.open_access import OpenAccess
    from bk_spark.gateway.server import Gateway, GatewayAddress
    from bk_spark.process.memory import have_arrow_give_back

    have_arrow_give_back()
    address = GatewayAddress(args.host, args.port, tuple(args.location or ()))
    tls = _tls(args)
    with contextlib.ExitStack() as undo:
        client = undo.enter_context(BookKeeper(metadata_uri(args), replace(client_config(args), read_batch_bytes=READ_BYTES)))
        access: Access = OpenAccess()
        if not args.open:
            access = undo.enter_context(contextlib.closing(granted_access(client.metadata_store, client.znodes)))
        gateway = undo.enter_context(Gateway(client, access, config, address, tls))
        undo.enter_context(http_endpoint(gateway, args.http_host, config.http_port))
        scheme = "grpc" if tls is None else "grpc+tls"
        print_record({"url": f"{scheme}://{HostPort(args.host, gateway.port)}"}, as_json=args.json)
        if args.open:
            say("whoever reaches this address may read, append to and delete every log (--open)")
        stopped.wait()


def _check(args: argparse.Namespace) -> None:
    if bool(args.serve_certificate) != bool(args.serve_key):
        raise UsageError("--serve-certificate and --serve-key are given together, or neither")
    if args.serve_client_ca and not args.serve_certificate:
        raise UsageError("--serve-client-ca needs --serve-certificate and --serve-key: without TLS nobody shows a certificate")
    if not args.serve_certificate and not _is_loopback(args.host):
        remedy = "what is sent there could be read and changed by others: give --serve-certificate and --serve-key"
        raise UsageError(f"--host {args.host} is not this machine alone, and there is no TLS: {remedy}")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _tls(args: argparse.Namespace) -> TlsSource | None:
    from bk_spark.tls.files import TlsFiles, TlsSource

    if not args.serve_certificate:
        return None
    try:
        return TlsSource(TlsFiles(args.serve_client_ca or "", args.serve_certificate, args.serve_key))
    except ConfigError as problem:
        raise ConfigError(_SERVED.get(problem.what, problem.what), problem.value, problem.remedy) from None
