"""Bookies of a local cluster that do not serve, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bk_spark.errors import BookKeeperError, ProcessFailedError

_FIX = "cookie fix"
_PROGRAM = "bk-spark: "


@dataclass(frozen=True, slots=True)
class RefusedBookie:
    """A bookie that could not be started. The others serve without it."""

    name: str
    """Of its directory in that of the cluster."""
    bookie_id: str
    """"" if its directory does not say."""
    data_dir: Path
    reason: str
    """One sentence, which names the way out."""

    def told(self, metadata_uri: str) -> str:
        """One line for people, with the command that repairs it if there is one. Clients give ``metadata_uri``."""
        who = f"{self.name} ({self.bookie_id})" if self.bookie_id else self.name
        text = f"the cluster serves without {who}: {self.reason}"
        if _FIX not in self.reason or not self.bookie_id:
            return text
        return f"{text} (here: bk-spark {_FIX} {self.bookie_id} --data-dir {self.data_dir} --metadata {metadata_uri})"


def reason_of(problem: BookKeeperError) -> str:
    """One line: what the process printed last before it ended, or the problem itself."""
    if isinstance(problem, ProcessFailedError):
        lines = [line for line in problem.log_tail.splitlines() if line.strip()]
        said = lines[-1].removeprefix(_PROGRAM) if lines else "it printed nothing"
        return f"it {problem.problem}: {said}"
    return str(problem).splitlines()[0]
