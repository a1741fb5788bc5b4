"""``bk-spark doctor``: checks what a Spark user's machine needs, and gives the remedy for what is missing."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.arguments import Commands, command
from bk_spark.commands.connect import GIVE_METADATA, bookkeeper
from bk_spark.commands.output import print_records
from bk_spark.datasource.worker_python import DEFAULT, VARIABLE, why_unfit
from bk_spark.errors import BookKeeperError, ConfigError, State
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.wire.messages import AdminOperation, Status

ANSWER_S = 20
"""A program that has not printed its version after this long does not work."""


CONNECT_S = 10.0
"""How long Spark waits for the process of a stream's source. Ref: ``createSimpleWorker`` in Spark's PythonWorkerFactory."""

SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    check: str
    ok: bool
    detail: str


def add(commands: Commands) -> None:
    command(commands, "doctor", "check this machine and the cluster, and say what to do", _run)


def _run(args: argparse.Namespace) -> None:
    """Print one line for each check. Raises ConfigError if one failed."""
    checks: list[Callable[[], Diagnosis]] = [_python, _java, _pyspark, _workers, _stream_start, _discovery]
    findings = [check() for check in checks]
    if args.metadata:
        findings.append(_cluster(args))
    records = [{"check": f.check, "result": "ok" if f.ok else "PROBLEM", "detail": f.detail} for f in findings]
    if not args.metadata:
        records.append({"check": "cluster", "result": "not checked", "detail": GIVE_METADATA})
    print_records(records, ["check", "result", "detail"], as_json=args.json)
    failed = [finding.check for finding in findings if not finding.ok]
    if failed:
        raise ConfigError("this machine", State("not ready"), f"see the lines marked PROBLEM: {', '.join(failed)}")


def _python() -> Diagnosis:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Diagnosis("Python", sys.version_info >= (3, 11), f"{version}; 3.11 or newer is needed")


def _java() -> Diagnosis:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, but there is no bin/java below it" if home else "there is no 'java' on the PATH"
        return Diagnosis("Java", False, f"{where}: install a Java 17 runtime, such as Debian's openjdk-17-jre-headless")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    major = int(found.group(1)) if found else 0
    return Diagnosis("Java", major >= 17, f"{java} is version {major or 'unknown'}; 17 or newer is needed")


def _pyspark() -> Diagnosis:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Diagnosis("PySpark", False, "it is not installed: pip install 'pyspark>=4.2'")
    parts = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return Diagnosis("PySpark", parts >= (4, 2), f"{version}; 4.2 or newer is needed")


def _workers() -> Diagnosis:
    """Spark's workers run PYSPARK_PYTHON, or else python3 on the PATH, and need this package there."""
    python = os.environ.get(VARIABLE) or shutil.which(DEFAULT) or DEFAULT
    problem = why_unfit(python)
    if problem is None:
        return Diagnosis("Spark workers", True, python)
    remedy = f"set {VARIABLE}={sys.executable}, or activate its environment"
    if VARIABLE not in os.environ:
        remedy += "; with a local master, bk_spark.register(spark) is enough"
    return Diagnosis("Spark workers", False, f"workers would run {python}, {problem}: {remedy}")


def _stream_start() -> Diagnosis:
    """How long Python takes to import what the process of a stream's source does before it connects to Spark."""
    python = os.environ.get(VARIABLE) or shutil.which(DEFAULT) or DEFAULT
    found = util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(found.origin) if found and found.origin else "")
    zips = [str(path) for path in sorted(Path(home, "python", "lib").glob("*.zip"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*zips, os.environ.get("PYTHONPATH", "")])}
    began_s = time.monotonic()
    try:
        command = [python, "-c", f"import {SOURCE_RUNNER}"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    took_s = time.monotonic() - began_s
    if done is not None and done.returncode:
        return Diagnosis("stream sources", False, f"{python} cannot import PySpark: see the line on Spark workers")
    detail = f"the process of a stream's source starts in {took_s:.1f} s; Spark waits {CONNECT_S:g} s for it"
    if took_s > CONNECT_S / 4:  # no problem of the machine: it may be busy at this moment alone
        detail += ": start streams one after the other, and restart one whose Python worker failed to connect back"
    return Diagnosis("stream sources", True, detail)


def _discovery() -> Diagnosis:
    """Spark imports every top-level ``pyspark_*`` module; one that fails disables all of them."""
    names = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
    if "pyspark_bookkeeper" not in names:
        return Diagnosis("format discovery", False, "pyspark_bookkeeper is not on the path: pip install bk-spark here")
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as problem:
            remedy = f"'{name}' cannot be imported ({problem}), so Spark finds no Python format: call bk_spark.register(spark)"
            return Diagnosis("format discovery", False, remedy)
    return Diagnosis("format discovery", True, 'spark.read.format("bookkeeper") is found without registration')


def _cluster(args: argparse.Namespace) -> Diagnosis:
    try:
        with bookkeeper(args) as client:
            registered = client.list_bookies()
            writable = [bookie for bookie in registered if not bookie.read_only]
            silent = [problem for bookie in writable if (problem := _silence(client, bookie))]
            missing = set(client.metadata_store.children(client.znodes.cookies)) - {bookie.bookie_id for bookie in registered}
    except BookKeeperError as problem:
        return Diagnosis("cluster", False, str(problem))
    found = [f"{len(writable) - len(silent)} of {len(writable)} writable bookies of {args.metadata} answer", *silent[:1]]
    if missing:
        found.append(f"{len(missing)} more have cookies and are not registered, such as {min(missing)}")
    return Diagnosis("cluster", bool(writable) and not silent, "; ".join(found))


def _silence(client: BookKeeper, bookie: RegisteredBookie) -> str:
    """Why a bookie counts as silent; "" if it answers."""
    if bookie.is_apache:
        return "" if client.describe_bookie(bookie.bookie_id) else f"no answer from {bookie.bookie_id}"
    reply = client.administer_bookie(bookie.bookie_id, AdminOperation.BOOKIE_STATUS)
    return reply.detail if reply.status is Status.UNKNOWN else ""
