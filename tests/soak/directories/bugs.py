"""Deliberate bugs of embedded/ and local/, as changes of their text in a copy of the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import bk_spark

_JOIN, _PLACE, _STATE, _CLUSTER = "embedded/join.py", "local/place.py", "local/state.py", "local/cluster.py"
_PORTS, _ZOOKEEPER, _PROCESS, _HOST = (
    "local/ports.py",
    "local/zookeeper_server.py",
    "local/process.py",
    "local/embedded_host.py",
)

BUGS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "the state file of a copy is believed": (
        (_JOIN, "if host.token and host.directory == _inode(directory) else", "if host.token else"),
    ),
    "files are written by path": ((_PLACE, '_FOLLOWS = sys.platform == "linux"', "_FOLLOWS = False"),),
    "any ZooKeeper on the port is ours": (
        (_ZOOKEEPER, "return self._proof in answer", "return True"),
        (_PORTS, "held.enter_context(socket.socket(socket.AF_UNIX)).bind", "str"),
        (_STATE, "        return self.mark not in", "        return False and self.mark not in"),
    ),
    "a copy that was made in use is opened": ((_STATE, "if state.in_use and state.is_copied", "if False and state.is_copied"),),
    "one bookie stops all": ((_CLUSTER, "                    refused[bookie] = problem\n", "                    raise\n"),),
    "hard links are not seen": ((_PLACE, "stat.S_ISREG(found.st_mode) and found.st_nlink > 1", "False"),),
    "a removed directory is not noticed": (
        (_PLACE, "!= self._locked", "!= self._locked and False"),
        (_PLACE, "return True\n        return (", "return False\n        return ("),
    ),
    "the host never ends": ((_HOST, "time.monotonic() + LINGER_S if users", "time.monotonic() + 1e6 if users"),),
    "nothing is locked": ((_PLACE, "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH"),),
    "the keeper sleeps": (
        (_PROCESS, "while os.getppid() == owner and not select.select([0], [], [], 1.0)[0]:\n    pass", "time.sleep(1e6)"),
    ),
    "errors of the system are passed on": (
        (
            _PLACE,
            "    except OSError as problem:\n        raise ConfigError",
            "    except ZeroDivisionError as problem:\n        raise ConfigError",
        ),
    ),
}


def package_with(bug: str, folder: Path) -> Path:
    """A folder to import ``bk_spark`` from that has the bug; "" for none."""
    original = Path(bk_spark.__file__).parent
    if not bug:
        return original.parent
    shutil.copytree(original, folder / "bk_spark", ignore=shutil.ignore_patterns("__pycache__"))
    for name, right, wrong in BUGS[bug]:
        file = folder / "bk_spark" / name
        text = file.read_text()
        if text.count(right) != 1:
            raise ValueError(f"{name} has {right!r} {text.count(right)} times")
        file.write_text(text.replace(right, wrong))
    return folder
