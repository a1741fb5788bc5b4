"""The machine and the versions that figures belong to."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bk_spark import __version__

ROOT = Path(__file__).parent.parent.parent
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Environment:
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    file_system: str
    """Of the directory that the workloads write to."""
    python: str
    pyspark: str
    pyarrow: str
    grpcio: str
    java: str
    bk_spark: str
    commit: str
    """With a ``+`` where files differ from it."""
    load_average: str
    """Of the last 1, 5 and 15 minutes, at the start: what else the machine was doing."""

    def lines(self) -> list[str]:
        return [f"{name.replace('_', ' ')}: {value}" for name, value in dataclasses.asdict(self).items()]


def environment(directory: Path) -> Environment:
    return Environment(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=f"{platform.system()} {platform.release()}",
        file_system=_file_system(directory),
        python=platform.python_version(),
        pyspark=importlib.metadata.version("pyspark"),
        pyarrow=importlib.metadata.version("pyarrow"),
        grpcio=importlib.metadata.version("grpcio"),
        java=_java(),
        bk_spark=__version__,
        commit=_commit(),
        load_average=" ".join(f"{load:.2f}" for load in os.getloadavg()),
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Type and device of the mount that holds it: the longest mount point above it."""
    path, best, found = str(directory.resolve()), "", UNKNOWN
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount_point, kind = line.split()[:3]
        if (path + "/").startswith(mount_point.rstrip("/") + "/") and len(mount_point) >= len(best):
            best, found = mount_point, f"{kind} on {device}"
    return found


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    said = _output([java, "-version"], stderr=True) if java else ""
    return said.splitlines()[0] if said else "none"


def _commit() -> str:
    commit = _output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    changed = _output(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit}{'+' if changed else ''}" if commit else UNKNOWN


def _output(command: list[str], *, stderr: bool = False) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return (done.stderr if stderr else done.stdout).strip() if done.returncode == 0 else ""
