"""The process that keeps a cluster's ledgers whole: a candidate for auditor, and a replication worker, until it is stopped.

Any number of these may run, on the bookies' machines or others: one of them is the auditor, all of them copy.

The metadata store must answer at the start. Later it may be away for any time: both go on trying, and once a new session
stands the auditor is elected anew and the worker takes its locks anew.

``threading``: whoever runs this waits on its own thread until it is told to stop.

Ref: docs/rules.md, situations 76, 78 and 83.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.replication.auditor import AuditorProcess
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.client.replication.worker import ReplicationWorker
from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import open_root
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.zookeeper import connect, parse_uri
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, text_response
from bk_spark.telemetry.metrics import AUTORECOVERY, CLIENT
from bk_spark.telemetry.registry import CONTENT_TYPE, render

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoRecoveryPlace:
    """How one process takes part."""

    name: str
    """Who it is, for people: in votes, locks and logs."""
    http_host: str = "127.0.0.1"
    """Where ``http_port`` listens."""
    with_worker: bool = True
    """False: it is a candidate for auditor alone."""
    client: ClientConfig = field(default_factory=ClientConfig)
    """How bookies are reached: certificates, timeouts."""


def run_autorecovery(
    uri: str, config: AutoRecoveryConfig, place: AutoRecoveryPlace, until: threading.Event | None = None
) -> bool:
    """Take part until ``until`` is set. Whether that was why it ended: False after a failure of its own, which is in the log.

    Raises ConfigError where there is no cluster, or ``http_port`` is taken, and MetadataUnavailableError at the start.
    """
    until = until or threading.Event()
    failed = threading.Event()
    client = replace(place.client, session_timeout_s=config.session_timeout_s, connect_timeout_s=config.connect_timeout_s)

    def on_failure() -> None:
        failed.set()
        until.set()

    with contextlib.ExitStack() as undo:
        store = undo.enter_context(
            connect(
                uri,
                connect_timeout_s=config.connect_timeout_s,
                session_timeout_s=config.session_timeout_s,
                auth=client.zookeeper_auth,
            )
        )
        znodes = open_root(store, parse_uri(uri)[1])
        context = ClientContext(store, znodes, client)
        undo.callback(context.close)
        marks = UnderReplication(store, znodes)
        auditor = AuditorProcess(store, znodes, context, config, marks=marks, auditor_id=place.name, on_failure=on_failure)
        if config.http_port:
            undo.enter_context(HttpEndpoint(place.http_host, config.http_port, {"/metrics": _metrics, "/health": _health}))
        undo.callback(auditor.stop)
        auditor.start()
        if place.with_worker:
            worker = ReplicationWorker(store, znodes, context, config, marks, place.name)
            undo.callback(worker.stop)
            worker.start()
        logger.info("%s takes part in AutoRecovery of %s", place.name, uri)
        until.wait()
    return not failed.is_set()


def _metrics(_: Mapping[str, str]) -> Response:
    return Response(200, CONTENT_TYPE, render(AUTORECOVERY, CLIENT))


def _health(_: Mapping[str, str]) -> Response:
    return text_response(200, "alive")
