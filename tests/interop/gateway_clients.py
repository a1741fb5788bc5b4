"""The programs of examples/gateway, built, and what they print as values of Python."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.peers.bookkeeper_cluster import java_command
from tests.checkout import ROOT
from tests.interop.go_toolchain import go_program
from tests.java_classes import compile_java

SOURCES = ROOT / "examples" / "gateway"
JAVA, GO = "java", "go"
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED")
_CALL_S = 120.0


class RefusedError(Exception):
    """A program ended with an error; its text is what it said."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """``authority``: the file of who signed its certificate; none: a gateway without TLS."""

    uri: str
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class GatewayProgram:
    command: Sequence[str]

    def append(self, gateway: GatewayAddress, token: str, log: str, number: int) -> dict[str, Any]:
        """The gateway's answer."""
        return dict(json.loads(self._run(gateway, token, "append", log, str(number))))

    def read(self, gateway: GatewayAddress, token: str, log: str) -> list[dict[str, Any]]:
        return [_typed(json.loads(line, parse_float=Decimal)) for line in self._run(gateway, token, "read", log).splitlines()]

    def _run(self, gateway: GatewayAddress, token: str, *words: str) -> str:
        environment = {**os.environ, "GATEWAY_TOKEN": token}
        if gateway.authority is not None:
            environment["GATEWAY_CA"] = str(gateway.authority)
        command = [*self.command, gateway.uri, *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_CALL_S
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr.splitlines()[-1])  # a JVM may say before it which options it found
        return done.stdout


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """Java prints a decimal as a number and Go as a text; a time has no type in JSON."""
    km, fare, began = row["km"], row["fare"], row["began"]
    return {
        **row,
        "km": None if km is None else float(km),
        "fare": None if fare is None else Decimal(fare),
        "began": None if began is None else datetime.fromisoformat(began),
    }


def built(language: str, directory: Path) -> GatewayProgram:
    """Raises SkippedError where what it is built with is not to be had."""
    return _java(directory) if language == JAVA else _go(directory)


def _java(directory: Path) -> GatewayProgram:
    *java, class_path = java_command(_JVM, SOURCES / "java" / "pom.xml")
    compile_java(SOURCES / "java" / "src", class_path, directory)
    return GatewayProgram([*java, os.pathsep.join([str(directory), class_path]), "GatewayClient"])


def _go(directory: Path) -> GatewayProgram:
    program = directory / "gateway-client"
    go_program(SOURCES / "go", program)
    return GatewayProgram([str(program)])
