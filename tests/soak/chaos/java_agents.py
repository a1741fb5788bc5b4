"""Client processes of the chaos test with Apache BookKeeper's Java client; the program is in java/chaosagent.

In one of a hundred rounds in which Java recovers, the closed ledger has a wrong length, by two defects of that client (4.17.3,
on Apache's bookies, too). Its recovery begins with the length that comes with the last add confirmed, which is that of the last
entry of the bookie that says it (LedgerRecoveryOp; DigestManager.verifyDigestAndReturnLastConfirmed), and stores that length
where nothing behind is recovered. And a writer whose adds failed takes their lengths back, not their ids, before its next add
(LedgerHandle.drainPendingAddsAndAdjustLength); its recovery keeps the length that such an entry has. So lengths are judged only
where all recoverers are ours. DESIGN.md, "Where the protocol differs", says what ours do.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import POM
from benchmarks.peers.fetch import jars
from bk_spark.local.zookeeper_server import find_java
from tests.interop.apache import JAVA
from tests.java_classes import compile_java
from tests.soak.chaos.plan import MAX_APPEND_BYTES, SIZES, WRITER
from tests.soak.chaos.workload import CONFIG

SOURCES = Path(__file__).resolve().parent / "java"

SETTINGS = (
    "add_timeout_s",
    "add_quorum_timeout_s",
    "read_timeout_s",
    "speculative_read_s",
    "quarantine_s",
    "quarantine_errors",
)
"""What the Java client has, too. Its writer fails where no bookie replaces another one; its recoveries have no time limit."""


@dataclass(frozen=True, slots=True)
class JavaAgents:
    """The compiled program, for one cluster."""

    class_path: str
    metadata_uri: str

    def command(self, role: str) -> list[str]:
        """The writer speaks version 2 of the wire, as Pulsar does. Long polls need version 3."""
        client = dataclasses.asdict(CONFIG)
        settings = {name: client[name] for name in SETTINGS} | {"sizes": SIZES, "max_append_bytes": MAX_APPEND_BYTES}
        java = [find_java(), *JAVA, "-Dlog4j2.level=INFO", "-cp", self.class_path, "chaosagent.Agent"]
        return [*java, self.metadata_uri, "2" if role == WRITER else "3", json.dumps(settings)]


def compiled_agents(metadata_uri: str, directory: Path) -> JavaAgents:
    """Compile into ``directory``. ``metadata_uri`` is that of our clients. Raises SkippedError where jars are not to be had."""
    libraries = os.pathsep.join(map(str, jars(POM)))
    compile_java(SOURCES, libraries, directory)
    uri_of_java = metadata_uri.replace("zk://", "zk+hierarchical://")
    return JavaAgents(f"{directory}{os.pathsep}{libraries}", uri_of_java)
