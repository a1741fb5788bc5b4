"""Where everything of a log stands in the metadata store.

::

    names/<name>                     → uid
    transactions/<2 hex>/<sha256>    the last transaction of one application id
    data/<uid>/head                  where the log stands: every commit is a compare-and-set here
    data/<uid>/secret                             of a secured log, immutable: the keys of its ledgers come from it
    data/<uid>/versions/<n // 1000>/<n>           one commit, immutable
    data/<uid>/applications/<2 hex>/<sha256>      the last version of one application id
    data/<uid>/schemas/<k>                        Spark JSON, immutable
    data/<uid>/checkpoints/<n // 1000000>/<n>     the whole listing of a version, immutable; its pages are <n>/<i>
    data/<uid>/cursors/<sha256>                   how far a stream has read
    data/<uid>/tier/settings                      where the tier lies, and when rows come into it
    data/<uid>/tier/worker                        ephemeral: who tiers the log now
    data/<uid>/tier/step                          the step under way
    data/<uid>/tier/sections/<n // 1000>/<n>      one section: where the rows of its ledgers lie
    data/<uid>/jobs/<2 hex>/<job id>              one write job: whether it committed, and as which version
    …/<job id>/running                            exists until the job ends; only its commit or its abort deletes it
    …/<job id>/pages/<i>                          the ledgers that the commit adds and removes
    …/<job id>/ledgers/<id // 1000>/<ledger id>   every ledger that an attempt of the job created

No path has more than 10,000 children. The values: ``values.py``.
"""

from __future__ import annotations

import hashlib
from typing import Final

from bk_spark.entries.log_secret import SECRET_NAME

BUCKET = 1000
"""Versions and ledgers per directory: with 10,000 directories, ten million of each."""
CHECKPOINT_INTERVAL = 1000
"""Versions from one checkpoint to the next, at least: see ``checkpoint.py``."""
CHECKPOINTS_SPAN = BUCKET * CHECKPOINT_INTERVAL
"""Versions whose checkpoints are in one directory."""


class JobPaths:
    """The paths of one write job under one log's uid."""

    def __init__(self, root: str) -> None:
        self.root: Final = root
        self.running: Final = f"{root}/running"
        self.pages: Final = f"{root}/pages"
        self.ledgers: Final = f"{root}/ledgers"

    def page(self, index: int) -> str:
        return f"{self.pages}/{index}"

    def ledger_bucket(self, ledger_id: int) -> str:
        return f"{self.ledgers}/{ledger_id // BUCKET}"

    def ledger(self, ledger_id: int) -> str:
        return f"{self.ledger_bucket(ledger_id)}/{ledger_id}"


class LogPaths:
    """The paths below one log's uid, whose own path is ``root``."""

    def __init__(self, root: str) -> None:
        self.root: Final = root
        self.head: Final = f"{root}/head"
        self.secret: Final = f"{root}/{SECRET_NAME}"
        self.versions: Final = f"{root}/versions"
        self.applications: Final = f"{root}/applications"
        self.schemas: Final = f"{root}/schemas"
        self.checkpoints: Final = f"{root}/checkpoints"
        self.cursors: Final = f"{root}/cursors"
        self.jobs: Final = f"{root}/jobs"
        self.directories: Final = (self.applications, self.schemas, self.jobs, self.checkpoints, self.cursors)
        """What every log has from its beginning."""

    def version_bucket(self, version: int) -> str:
        return f"{self.versions}/{version // BUCKET}"

    def version(self, version: int) -> str:
        return f"{self.version_bucket(version)}/{version}"

    def checkpoint_bucket(self, version: int) -> str:
        return f"{self.checkpoints}/{version // CHECKPOINTS_SPAN}"

    def checkpoint(self, version: int) -> str:
        return f"{self.checkpoint_bucket(version)}/{version}"

    def checkpoint_page(self, version: int, index: int) -> str:
        return f"{self.checkpoint(version)}/{index}"

    def schema(self, schema_id: int) -> str:
        return f"{self.schemas}/{schema_id}"

    def application_bucket(self, application_id: str) -> str:
        return application_bucket(self.applications, application_id)

    def application(self, application_id: str) -> str:
        return application_path(self.applications, application_id)

    @property
    def tier(self) -> str:
        return f"{self.root}/tier"

    @property
    def tier_settings(self) -> str:
        return f"{self.tier}/settings"

    @property
    def tier_worker(self) -> str:
        return f"{self.tier}/worker"

    @property
    def tier_step(self) -> str:
        return f"{self.tier}/step"

    @property
    def tier_sections(self) -> str:
        return f"{self.tier}/sections"

    def tier_section_bucket(self, number: int) -> str:
        return f"{self.tier_sections}/{number // BUCKET}"

    def tier_section(self, number: int) -> str:
        return f"{self.tier_section_bucket(number)}/{number}"

    def cursor(self, name: str) -> str:
        return f"{self.cursors}/{_sha256(name)}"

    def job_bucket(self, job_id: str) -> str:
        return f"{self.jobs}/{_sha256(job_id)[:2]}"

    def job(self, job_id: str) -> JobPaths:
        return JobPaths(f"{self.job_bucket(job_id)}/{job_id}")


def application_bucket(directory: str, application_id: str) -> str:
    """The parent of ``application_path``."""
    return f"{directory}/{_sha256(application_id)[:2]}"


def application_path(directory: str, application_id: str) -> str:
    """Where a directory of applications has one of them."""
    return f"{application_bucket(directory, application_id)}/{_sha256(application_id)}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
