"""An AutoRecovery process of a local cluster: a candidate for auditor, and a replication worker."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from bk_spark.client.replication.auditor_znodes import candidates
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.config import ClientConfig
from bk_spark.local.process import HOST, Keeper, LocalProcess
from bk_spark.local.security import command_environment, command_options
from bk_spark.metadata.registration import open_root
from bk_spark.metadata.zookeeper import connect, parse_uri

_SESSION_S = 10.0
"""Of the short session in which a start waits for the process's vote."""


class LocalAutoRecovery(LocalProcess):
    """One such process. Made by ``LocalCluster.start_autorecovery``; ``port`` is its ``http_port``, 0 if it has none."""

    def __init__(
        self, keeper: Keeper, directory: Path, metadata_uri: str, config: AutoRecoveryConfig, client: ClientConfig
    ) -> None:
        """``client`` says how it reaches bookies and ZooKeeper."""
        super().__init__(keeper, directory, config.http_port)
        self.config = config
        """The settings that it starts with, the next time."""
        self.name = ""
        """Its name in votes and locks; another one at each start, for the vote of a killed process stays for a while."""
        self._metadata_uri = metadata_uri
        self._client = client
        self._starts = 0

    def start(self) -> None:
        """Start it, and wait until it stands for election."""
        self.check_stopped()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        self.name = f"{self._directory.name}.{self._starts}"
        command = autorecovery_command(self._metadata_uri, self.name, self.config)
        auth = self._client.zookeeper_auth
        with connect(self._metadata_uri, connect_timeout_s=_SESSION_S, session_timeout_s=_SESSION_S, auth=auth) as store:
            znodes = open_root(store, parse_uri(self._metadata_uri)[1])
            self._launch(command + command_options(self._client), command_environment(self._client))
            self._await(lambda: self.name in candidates(store, znodes))


def autorecovery_command(metadata_uri: str, name: str, config: AutoRecoveryConfig) -> list[str]:
    """How such a process is started: with all settings that are not the default."""
    options = ["--metadata", metadata_uri, "--name", name, "--http-host", HOST]
    for field in dataclasses.fields(AutoRecoveryConfig):
        value = getattr(config, field.name)
        if value != field.default:
            options += ["--" + field.name.replace("_", "-"), str(value)]
    return [sys.executable, "-P", "-m", "bk_spark.cli", "autorecovery", "run", *options]
