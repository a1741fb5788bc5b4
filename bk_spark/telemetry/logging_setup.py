"""Sets up the log of a long-running command on stderr: lines for people, or one JSON object a line (``--log-json``).

::

    2026-11-21 15:04:05,123 INFO bk_spark.bookie.process.run_bookie bookie 10.0.0.7:3181-1f2e3d4c serves on 10.0.0.7:3181
    {"time": "2026-11-21T15:04:05.123Z", "level": "INFO", "logger": "bk_spark.bookie.process.run_bookie",
     "message": "bookie 10.0.0.7:3181-1f2e3d4c serves on …", "thread": "MainThread", "bookie": "10.0.0.7:3181-1f2e3d4c"}

JSON lines have ``bookie`` if the process is a bookie, and ``exception`` (the traceback as text) if there was one. Uncaught
errors and Python's warnings are logged in the same format. No line shows a password, a key or a credential.

The audit log of a bookie (AUDIT_LOGGER) goes where the other lines go, or into a file of its own, in the same form.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import TracebackType

from bk_spark.errors import ConfigError

AUDIT_LOGGER = "bk_spark.audit"

TELL_S = 60.0
"""Between two lines that an audit log cannot be written."""

READABLE = "%(asctime)s %(levelname)s %(name)s %(message)s"

logger = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

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
    """Write this process's log to stderr, unless the program around it has set up logging. Call it before anything else."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_json if as_json else logging.Formatter(READABLE))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("kazoo").setLevel(logging.INFO)  # below INFO it logs requests, and with them credentials
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _ended_thread


def set_up_audit_log(path: str, as_json: bool) -> None:
    """Write the audit log into the file at ``path``, and no longer to stderr. A file that was moved away is made anew.

    Raises ConfigError if the file cannot be opened to append.
    """
    try:
        Path(path).touch(mode=0o600)
        handler = _AuditFile(path, encoding="utf-8")
    except OSError as problem:
        remedy = f"it cannot be written ({problem.strerror}): name a file in a directory that this process may write to"
        raise ConfigError("audit_log (--audit-log)", path, remedy) from problem
    handler.setFormatter(_json if as_json else logging.Formatter(READABLE))
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False


class _AuditFile(WatchedFileHandler):
    """A file whose failures are told in the log of the process, not too often: the bookie goes on without it."""

    _told_s = -TELL_S

    def handleError(self, record: logging.LogRecord) -> None:
        if time.monotonic() - self._told_s >= TELL_S:
            self._told_s = time.monotonic()
            logger.error("a line of the audit log %s is lost: %s", self.baseFilename, sys.exc_info()[1])


def name_bookie(bookie_id: str) -> None:
    """Name this bookie in all later JSON lines of the process."""
    _json.bookie_id = bookie_id


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("the process ends by an error that nobody caught", exc_info=(kind, error, trace))


def _ended_thread(ended: threading.ExceptHookArgs) -> None:
    name = ended.thread.name if ended.thread is not None else "of no name"
    error = ended.exc_value if ended.exc_value is not None else ended.exc_type()
    logger.critical(
        "the thread %s ended by an error that nobody caught", name, exc_info=(ended.exc_type, error, ended.exc_traceback)
    )
