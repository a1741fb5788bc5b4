"""A random program over directories of clusters, judged by a model (model.py)."""

from __future__ import annotations

import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.soak.directories.model import Directory, is_sentence
from tests.soak.directories.processes import Finding, User, await_that, kill_all, living, working_in

NAMES = ("a", "b", "c", "d")
"""Few, so that a name is soon that of another directory."""

MAX_USERS = 3
SUSPENDED_S = 2.0
IN_USE = "made while the original was in use"


class World:
    """Directories in one folder. Each method named ``step_…`` is a step; False if it does not apply now."""

    def __init__(self, folder: Path, seed: int, code: Path, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.code = code
        self.say = say
        self.directories: list[Directory] = []
        self.users: list[User] = []
        self.rows = 0
        self.done: collections.Counter[str] = collections.Counter()
        self.small_disk = False
        steps = [name for name in sorted(dir(self)) if name.startswith("step_")]
        habits = {name: self.random.choice((0, 0, 1, 4)) for name in steps}
        self.weights = {**habits, "step_open": 4, "step_append": 1, "step_end": 4}
        """Of the steps: each world does some often and others never, so that it comes to states that an even mixture rarely
        reaches."""

    def step(self) -> None:
        """One step that applies. Raises Finding."""
        while True:
            [name] = self.random.choices(list(self.weights), list(self.weights.values()))
            if getattr(self, name)() is not False:
                self.done[name.removeprefix("step_")] += 1
                return

    def end(self) -> None:
        """End everything: nothing may be left running."""
        for user in list(self.users):
            self._end(user)
        await_that("nothing is left running", lambda: not living(self.folder))

    # --- users

    def step_open(self) -> bool | None:
        if len(self.users) >= MAX_USERS:
            return False
        directory = self._some() if self.random.random() < 0.8 else None
        if directory is None:
            free = self._free_path()
            if free is None:
                return False
            directory = Directory(free)
            self.directories.append(directory)
        self._open(directory)
        return None

    def step_open_several_at_once(self) -> bool | None:
        """Directories that nobody uses, as copies of one are, or one directory twice."""
        quiet = [one for one in self.directories if one.path is not None and not one.refusal and not self._users_of(one)]
        if not quiet or len(self.users) + 2 > MAX_USERS + 1:
            return False
        chosen = self.random.sample(quiet, 2) if len(quiet) > 1 and self.random.random() < 0.7 else [quiet[0]] * 2
        self.say(f"open {[one.path.name for one in chosen if one.path]} at once")
        begun = [self._start("embedded", one) for one in chosen]
        for user in begun:
            self._welcome(user)
        return None

    def step_append(self) -> bool | None:
        if not self.users:
            return False
        self._append(self.random.choice(self.users))
        return None

    def step_read(self) -> bool | None:
        if not self.users:
            return False
        self._read(self.random.choice(self.users))
        return None

    def step_end(self) -> bool | None:
        if not self.users:
            return False
        self._end(self.random.choice(self.users))
        return None

    def step_kill_user(self) -> bool | None:
        if not self.users:
            return False
        user = self.random.choice(self.users)
        self.say(f"kill a user of {user.directory.path}")
        user.kill()
        self.users.remove(user)
        if user.kind == "cluster":
            user.directory.is_killed = True
            await_that("the cluster of a killed user ends", lambda: not self._running(user.directory))
        return None

    # --- directories

    def step_copy(self) -> bool | None:
        """As ``cp -a`` does it, whatever runs meanwhile."""
        source, target = self._some(), self._free_path()
        if source is None or source.path is None or target is None or source.refusal:
            return False
        is_live = self._is_live(source)
        self.say(f"cp -a {source.path.name} {target.name} ({'in use' if is_live else 'quiet'})")
        copy = source.copied(target)
        subprocess.run(["cp", "-a", str(source.path), str(target)], check=False, stderr=subprocess.DEVNULL)
        if is_live or not source.is_ended_properly:
            copy.refusal = IN_USE
        self.directories.append(copy)
        if is_live and len(self.users) < MAX_USERS:
            self._open(copy)
        return None

    def step_copy_command(self) -> bool | None:
        source, target = self._some(), self._free_path()
        if (
            source is None
            or source.path is None
            or target is None
            or source.refusal
            or not (source.path / "cluster.json").exists()
        ):
            return False
        is_live = self._is_live(source)
        told = self._command("local", "copy", str(source.path), str(target))
        self.say(f"local copy {source.path.name} {target.name}: {told or 'done'}")
        if is_live and "in use" not in told:
            raise Finding(f"a directory in use was copied: {told!r}")
        if not is_live and told:
            raise Finding(f"a quiet directory was not copied: {told}")
        if not told:
            self.directories.append(source.copied(target))
        return None

    def step_accept_copy(self) -> bool | None:
        refused = [one for one in self.directories if one.refusal == IN_USE and one.path is not None]
        if not refused:
            return False
        copy = self.random.choice(refused)
        self.say(f"accept {copy.path}")
        if told := self._command("local", "accept-copy", str(copy.path)):
            raise Finding(told)
        copy.refusal, copy.excuse = "", "a copy that was made in use"
        copy.possible |= copy.confirmed
        copy.confirmed = set()
        return None

    def step_rename(self) -> bool | None:
        directory, target = self._some(), self._free_path()
        if directory is None or directory.path is None or target is None:
            return False
        self.say(f"mv {directory.path.name} {target.name}")
        directory.path.rename(target)
        directory.path = target
        return None

    def step_remove(self) -> bool | None:
        directory = self._some()
        if directory is None or directory.path is None or self.random.random() < 0.5:
            return False
        users = self._users_of(directory)
        self.say(f"rm -rf {directory.path.name} ({len(users)} users)")
        inode = _inode(directory.path)
        shutil.rmtree(directory.path, ignore_errors=True)
        path, directory.path = directory.path, None
        if not any(user.kind == "cluster" for user in users):
            await_that(f"the cluster of the removed {path.name} ends", lambda: not working_in(inode), 30.0)
        for user in users:
            user.kill()
            self.users.remove(user)
        if path.exists():  # rm lost a race with what wrote there: it is an empty directory to users
            self.directories.append(Directory(path))
        return None

    def step_link(self) -> bool | None:
        """Open a directory by another path that leads to it."""
        directory = self._some()
        if directory is None or directory.path is None or len(self.users) >= MAX_USERS:
            return False
        alias = self.folder / "alias"
        alias.unlink(missing_ok=True)
        alias.symlink_to(directory.path)
        self._open(directory, alias)
        return None

    def step_hard_links(self) -> bool | None:
        """``cp -al``: neither may start while both are there."""
        directory, target = self._some(), self._free_path()
        if directory is None or directory.path is None or target is None or directory.refusal or self._users_of(directory):
            return False
        self._quiet(directory)
        if not directory.is_ended_properly or not (directory.path / "cluster.json").exists():
            return False
        self.say(f"cp -al {directory.path.name} {target.name}")
        subprocess.run(["cp", "-al", str(directory.path), str(target)], check=True)
        for path in self.random.sample([directory.path, target], 2):
            self._open(Directory(path, refusal="a hard link"))
        shutil.rmtree(target)
        return None

    def step_restore_bookie(self) -> bool | None:
        """One bookie goes back to an older copy: the others have what it lacks."""
        directory = self._some()
        if directory is None or directory.path is None or directory.refusal or self._is_live(directory) or directory.is_wounded:
            return False
        data = directory.path / f"bookie-{self.random.randint(1, 3)}/data"
        if not (data / "cookie").exists():
            return False
        saved = self.folder / "saved"
        shutil.copytree(data, saved)
        self._open_and_end(directory)
        self.say(f"restore {data.parent.name} of {directory.path.name}")
        shutil.rmtree(data)
        saved.rename(data)
        directory.is_wounded = True
        self._open(directory)
        return None

    def step_take_the_name(self) -> bool | None:
        """A directory in use is renamed, and a new one gets its name. Each keeps its own rows, also when all begins anew."""
        used = [user.directory for user in self.users if user.directory.path is not None and not user.directory.refusal]
        target = self._free_path()
        if not used or target is None or len(self.users) >= MAX_USERS:
            return False
        moved = self.random.choice(used)
        assert moved.path is not None
        self.say(f"mv {moved.path.name} {target.name}, and open a new {moved.path.name}")
        new = Directory(moved.path)
        moved.path.rename(target)
        moved.path = target
        self.directories.append(new)
        self._open(new)
        for user in (*self._users_of(moved), *self._users_of(new)):
            self._append(user)
            self._end(user)
        for directory in (moved, new):
            self._quiet(directory)
            self._open_and_end(directory)
        return None

    def step_copies_start_together(self) -> bool | None:
        source, target = self._some(), self._free_path()
        if source is None or source.path is None or target is None or source.refusal or len(self.users) >= MAX_USERS:
            return False
        if self._is_live(source) or not source.is_ended_properly:
            return False
        self.say(f"cp -a {source.path.name} {target.name}, and open both at once")
        subprocess.run(["cp", "-a", str(source.path), str(target)], check=True)
        self.directories.append(source.copied(target))
        for user in [self._start("embedded", one) for one in (source, self.directories[-1])]:
            self._welcome(user)
        return None

    def step_odd_path(self) -> bool | None:
        """No directory can be there."""
        file, kind = self.folder / "file", self.random.choice(["embedded", "cluster"])
        file.touch()
        path, why = self.random.choice(
            [(file, ""), (file / "below", ""), (self.folder / ("long" * 100), "too long"), (Path("/proc/here"), "")]
        )
        self._welcome(self._start(kind, Directory(path, refusal=why or "cannot be")))
        return None

    # --- the machine

    def step_kill_process(self) -> bool | None:
        directory = self._some()
        victims = self._running(directory) if directory is not None else []
        victims = [pid for pid in victims if pid not in [user.process.pid for user in self.users]]
        if directory is None or not victims or any(user.kind == "cluster" for user in self._users_of(directory)):
            return False
        pid = self.random.choice(victims)
        words = _command_line(pid)
        self.say(f"kill process {pid} of {directory.path}: {words[:60]}")
        if "bookie start" not in words and "ZooKeeper" not in words:
            directory.is_killed = True
        kill_all([pid])
        return None

    def step_suspend(self) -> bool | None:
        """Whoever opens the directory meanwhile is served once the process goes on."""
        directory = self._some()
        victims = self._running(directory) if directory is not None else []
        victims = [pid for pid in victims if pid not in [user.process.pid for user in self.users]]
        if directory is None or not victims or len(self.users) >= MAX_USERS or self._kind(directory) != "embedded":
            return False
        pid = self.random.choice(victims)
        self.say(f"suspend process {pid} of {directory.path}: {_command_line(pid)[:60]}")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        user = self._start("embedded", directory)
        time.sleep(SUSPENDED_S)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._welcome(user)
        return None

    def step_reboot(self) -> bool | None:
        if self.random.random() < 0.5:
            return False
        self.say("reboot")
        for directory in self.directories:
            directory.is_killed |= bool(self._running(directory))
        while pids := living(self.folder):
            kill_all(pids)
            time.sleep(0.05)
        for user in self.users:
            user.kill()
        self.users.clear()
        return None

    def step_fill_disk(self) -> bool | None:
        if not self.small_disk or self.users or self.random.random() < 0.5:
            return False
        directory = self._some()
        if directory is None or directory.path is None or directory.refusal:
            return False
        self._quiet(directory)
        self.say("the disk is full")
        filler = self.folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        try:
            before, directory.excuse = directory.excuse, "the disk is full"
            self._open_and_end(directory)
        finally:
            filler.unlink()
        directory.excuse = before
        return None

    def step_take_rights(self) -> bool | None:
        """The directory can be read alone. Root is refused nothing else."""
        directory = self._some()
        if directory is None or directory.path is None or directory.refusal or self._users_of(directory) or os.geteuid():
            return False
        self._quiet(directory)
        path = str(directory.path)
        if subprocess.run(["mount", "--bind", path, path], check=False, stderr=subprocess.DEVNULL).returncode:
            return False
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
            self._open(Directory(directory.path, refusal="Read-only"))
        finally:
            subprocess.run(["umount", "--lazy", path], check=True)
        return None

    # --- what steps are made of

    def _some(self) -> Directory | None:
        named = [one for one in self.directories if one.path is not None]
        return self.random.choice(named) if named else None

    def _free_path(self) -> Path | None:
        free = [self.folder / name for name in NAMES if not os.path.lexists(self.folder / name)]
        taken = {one.path for one in self.directories}
        free = [path for path in free if path not in taken]
        return self.random.choice(free) if free else None

    def _users_of(self, directory: Directory) -> list[User]:
        return [user for user in self.users if user.directory is directory]

    def _kind(self, directory: Directory) -> str:
        """Of its users; or any, once nothing runs in it any more."""
        users = self._users_of(directory)
        return users[0].kind if users else self.random.choice(["embedded", "embedded", "cluster"])

    def _running(self, directory: Directory) -> list[int]:
        path = directory.path
        return working_in(_inode(path)) if path is not None and path.exists() else []

    def _quiet(self, directory: Directory) -> None:
        """Wait until the cluster in it has ended, as it does by itself without users."""
        if self._running(directory):
            await_that(f"the cluster in {directory.path} ends", lambda: not self._running(directory))
        if not directory.is_killed:
            directory.is_ended_properly = True

    def _is_live(self, directory: Directory) -> bool:
        """Whether its cluster runs and has users; one without is waited for."""
        if self._users_of(directory) and self._running(directory):
            return True
        self._quiet(directory)
        return False

    def _open(self, directory: Directory, path: Path | None = None) -> None:
        kind = self._kind(directory)
        if kind == "cluster":
            if self._users_of(directory):
                refused = Directory(directory.path, refusal="another local cluster uses it")
                self._welcome(self._start("cluster", refused, path))
                return
            self._quiet(directory)
        self._welcome(self._start(kind, directory, path))

    def _open_and_end(self, directory: Directory) -> None:
        """Also whoever used it before."""
        self._open(directory)
        for user in self._users_of(directory):
            self._end(user)
        self._quiet(directory)

    def _start(self, kind: str, directory: Directory, path: Path | None = None) -> User:
        self.say(f"open {(path or directory.path)} ({kind})")
        assert directory.path is not None
        return User(kind, path or directory.path, directory, self.folder, self.code)

    def _welcome(self, user: User) -> None:
        """Judge how it was opened, read everything, and append something."""
        directory, answer = user.directory, user.answer()
        if error := str(answer.get("error", "")):
            self.say(f"  refused: {error}")
            user.end()
            if not is_sentence(error):
                raise Finding(f"no sentence of ours: {error}")
            if directory.refusal not in error:
                raise Finding(f"refused for another reason than {directory.refusal!r}: {error}")
            if not directory.refusal and not directory.excuse:
                raise Finding(f"{directory.path} was refused, and should serve: {error}")
            return
        self.users.append(user)
        if directory.refusal:
            raise Finding(f"{directory.path} was opened, and should be refused: {directory.refusal}")
        directory.is_ended_properly = directory.is_killed = False
        self._read(user)
        self._append(user)

    def _read(self, user: User) -> None:
        answer = user.ask("read")
        directory = user.directory
        if "rows" not in answer:
            self.say(f"  cannot read: {answer['error']}")
            if not is_sentence(str(answer["error"])):
                raise Finding(f"no sentence of ours: {answer['error']}")
        elif wrong := directory.wrong_rows(answer["rows"]):
            raise Finding(f"in {directory.path}: {wrong}")
        else:
            self.say(f"  {len(answer['rows'])} rows in {directory.path}")

    def _append(self, user: User) -> None:
        rows = [f"row-{self.rows + number}" for number in range(self.random.randint(1, 3))]
        self.rows += len(rows)
        user.directory.possible.update(rows)
        answer = user.ask(" ".join(["append", *rows]))
        confirmed = answer.get("confirmed", [])
        user.directory.confirmed.update(confirmed)
        self.say(f"  {len(confirmed)} of {len(rows)} rows confirmed in {user.directory.path} {answer['error']}")
        if answer["error"] and not is_sentence(answer["error"]):
            raise Finding(f"no sentence of ours: {answer['error']}")

    def _end(self, user: User) -> None:
        self.say(f"end a user of {user.directory.path}")
        user.end()
        self.users.remove(user)

    def _command(self, *words: str) -> str:
        """What a command of ours complains about; "" if it is done. Raises Finding unless that is one line."""
        done = subprocess.run(
            [sys.executable, "-m", "bk_spark.cli", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.code)},
        )
        told = done.stderr.strip()
        if done.returncode and (not told or "\n" in told or "Traceback" in told):
            raise Finding(f"{' '.join(words)} ended with {done.returncode}: {told}")
        return told if done.returncode else ""


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return ""
