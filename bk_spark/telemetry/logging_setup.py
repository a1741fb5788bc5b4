"""How a long-running command writes its log: a line for people, or one JSON object a line (``--log-json``), on stderr.

::

    2026-11-21 15:04:05,123 INFO bk_spark.bookie.process.run_bookie bookie 10.0.0.7:3181-1f2e3d4c serves on 10.0.0.7:3181
    {"time": "2026-11-21T15:04:05.123Z", "level": "INFO", "logger": "bk_spark.bookie.process.run_bookie",
     "message": "bookie 10.0.0.7:3181-1f2e3d4c serves on …", "thread": "MainThread", "bookie": "10.0.0.7:3181-1f2e3d4c"}

In JSON ``bookie`` is there where the process is a bookie, ``exception`` (the trace, as text) where there was one. Errors that
nobody caught and Python's warnings are written the same way. No line shows a password, a key or a credential.

``threading`` and ``time`` are here, against the import table, for the errors that end threads and the form of the time.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from types import TracebackType

READABLE = "%(asctime)s %(levelname)s %(name)s %(message)s"

logger = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line."""

    def __init__(self) -> None:
        super().__init__()
        self.bookie_id = ""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{seconds}.{int(record.created * 1000) % 1000:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        if self.bookie_id:
            fields["bookie"] = self.bookie_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


_json = JsonFormatter()


def set_up_logging(as_json: bool) -> None:
    """Have this process write its log to stderr, unless the program around it has a log already. To be called first of all."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_json if as_json else logging.Formatter(READABLE))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("kazoo").setLevel(logging.INFO)  # below that it logs requests, and with them credentials
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _ended_thread


def name_bookie(bookie_id: str) -> None:
    """This process is this bookie: its JSON lines say so from now on."""
    _json.bookie_id = bookie_id


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("the process ends by an error that nobody caught", exc_info=(kind, error, trace))


def _ended_thread(ended: threading.ExceptHookArgs) -> None:
    name = ended.thread.name if ended.thread is not None else "of no name"
    error = ended.exc_value if ended.exc_value is not None else ended.exc_type()
    logger.critical(
        "the thread %s ended by an error that nobody caught", name, exc_info=(ended.exc_type, error, ended.exc_traceback)
    )
