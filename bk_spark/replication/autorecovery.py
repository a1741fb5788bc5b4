"""The AutoRecovery process: a candidate for auditor and a replication worker, until it is stopped.

Any number of these processes may run, on the bookies' machines or others. One of them is the auditor; all of them re-replicate.

The metadata store must answer at the start. Later it may be away for any time: auditor and worker keep trying, and with a new
session they stand for election and take locks anew.

``threading``: the caller waits on its own thread until it is told to stop.

Ref: docs/rules.md, situations 76, 78 and 83.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor import AuditorProcess
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.replication.worker import ReplicationWorker
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, Route, text_response
from bk_spark.telemetry.metrics import AUTORECOVERY, CLIENT
from bk_spark.telemetry.registry import CONTENT_TYPE, render

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoRecoveryPlace:
    """One process's part in AutoRecovery."""

    name: str
    """Names the process for people: in votes, locks and logs."""
    http_host: str = "127.0.0.1"
    """Where ``http_port`` listens."""
    with_worker: bool = True
    """False: the process is only a candidate for auditor."""
    client: ClientConfig = field(default_factory=ClientConfig)
    """How bookies are reached: certificates, timeouts."""


class Until(Protocol):
    """As ``threading.Event``."""

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


def run_autorecovery(uri: str, config: AutoRecoveryConfig, place: AutoRecoveryPlace, until: Until) -> bool:
    """Take part until ``until`` is set. Returns False if it ended by a failure of its own instead, which is in the log.

    Raises ConfigError where there is no cluster, or ``http_port`` is taken, and MetadataUnavailableError at the start.
    """
    failed = threading.Event()

    def on_failure() -> None:
        failed.set()
        until.set()

    settings = replace(
        place.client,
        session_timeout_s=config.session_timeout_s,
        connect_timeout_s=config.connect_timeout_s,
        min_racks_per_write_quorum=config.min_racks_per_write_quorum,
    )
    with BookKeeper(uri, settings) as client, contextlib.ExitStack() as undo:
        marks = UnderReplication(client.metadata_store, client.znodes)
        auditor = AuditorProcess(client.context, config, marks=marks, auditor_id=place.name, on_failure=on_failure)
        if config.http_port:
            routes: dict[str, Route] = {
                "/metrics": lambda _: Response(200, CONTENT_TYPE, render(AUTORECOVERY, CLIENT)),
                "/health": lambda _: text_response(200, "alive"),
            }
            undo.enter_context(HttpEndpoint(place.http_host, config.http_port, routes))
        undo.callback(auditor.stop)
        auditor.start()
        if place.with_worker:
            worker = ReplicationWorker(client.context, config, marks, place.name)
            undo.callback(worker.stop)
            worker.start()
        logger.info("%s takes part in AutoRecovery of %s", place.name, uri)
        until.wait()
    return not failed.is_set()
