"""Draws cases: every command, with options and files that fit and that do not, at rest and disturbed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.config import BookieConfig
from tests.soak.commands.cases import Case, Effect, nothing, refused
from tests.soak.commands.model import LogState, State
from tests.soak.commands.rows_files import draw_files, types_option, wanted_log
from tests.soak.commands.world import World

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
LONGEST_S = 1.5
"""A command ends in half a second on an idle machine: half of the signals come in time."""
NAMES = ("a", "b", "c", "größe")
READ = ("parquet", "arrow", "csv", "tsv", "json")
LOOKS = (
    "cluster show",
    "bookie list",
    "cookie list",
    "ledger list",
    "ledger list --limit 3",
    "log list",
    "orphans list",
    "orphans sweep",
    "log vacuum --all",
    "bookie balance --dry-run",
    "auditor who",
    "autorecovery status",
    "underreplicated list",
    "doctor",
)
OF_A_BOOKIE = (
    "bookie gc status",
    "bookie gc run",
    "bookie gc resume",
    "bookie scrub",
    "bookie status",
    "bookie read-only off",
    "cookie show",
)
OF_FILES = ("bookie id", "inspect journal", "inspect entry-log", "inspect index", "inspect mark")
SERVERS = ("dashboard --port 0", "auditor run --http-port 0", "autorecovery run --http-port 0")
MUST_BE_TOLD = {
    "bookie decommission nobody",
    "bookie read-only on nobody",
    "bookie limbo nobody",
    "cookie delete nobody",
    "log compact nothing",
    "replicate nobody",
}
NOT_DRAWN = {
    "local": "tests/soak/embedded and net 'directories' kill it",
    "bookie start": "tests/soak/chaos kills it",
}
"""Commands that are only drawn with wrong arguments, and why."""
OF_A_STOPPED_BOOKIE = ("bookie sanity", "bookie rebuild-index", "bookie id", "inspect mark", "cookie fix")
ABBREVIATED = ("--jso", "--metadat=zk://127.0.0.1:1/ledgers", "--tls-c=x")
WRONG = (
    "--no-such-option",
    "--limit=-3",
    "--types=zip",
    "--format=xml",
    "--before=x",
    "--older-than-s=-1",
    "--json=1",
    "\x00",
    "x" * 5_000,
    "../a",
    "",
)


def draw(chance: random.Random, world: World, state: State, folder: Path) -> Case:
    folder.mkdir(parents=True)
    kinds: list[tuple[int, Callable[[], Case]]] = [
        (40, lambda: _append(chance, world, state, folder)),
        (14, lambda: _read(chance, world, state, folder)),
        (10, lambda: _truncate(chance, world, state)),
        (3, lambda: _of_stopped_bookie(chance, world, folder)),
        (3, lambda: _abbreviated(chance)),
        (4, lambda: _set(chance, world, state)),
        (3, lambda: _delete(chance, world, state)),
        (3, lambda: _recover(chance, world, state)),
        (6, lambda: _ledger(chance, state)),
        (10, lambda: Case(tuple(chance.choice(LOOKS).split()))),
        (5, lambda: _of_bookie(chance, world)),
        (
            2,
            lambda: Case(
                ("bookie", "format", "--data-dir", str(folder / "bookie"), "--host", "127.0.0.1", "--port", "3999"),
                may_conflict=True,
            ),
        ),
        (2, lambda: Case(tuple(chance.choice(sorted(MUST_BE_TOLD)).split()), refused)),
        (2, lambda: Case(tuple(chance.choice(SERVERS).split()), runs_until_told=True)),
        (6, lambda: _wrong(chance, world)),
    ]
    if not world.is_shared:
        kinds.append((4, lambda: _autorecovery(chance)))
        kinds.append((2, lambda: _of_whole_cluster(chance, world)))
        kinds.append((1, lambda: Case(("bench", "--seconds", "1", "--entries", "500"))))
    [drawn] = chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
    return _disturbed(chance, drawn())


def _disturbed(chance: random.Random, case: Case) -> Case:
    case = replace(case, is_executable=chance.random() < 0.04, stdout=chance.choice(["", "", "", "closed", "ascii"]))
    if case.runs_until_told:
        return replace(case, signal=chance.choice(SIGNALS), after_s=chance.uniform(0, 3))
    if chance.random() < 0.45:
        return replace(
            case,
            signal=chance.choice(SIGNALS),
            after_s=chance.uniform(0, LONGEST_S) * (2 if case.is_executable else 1),
            copies=1 + (chance.random() < 0.2),
        )
    return replace(case, copies=1 + (chance.random() < 0.25))


def _once(before: State, after: State) -> Effect:
    """What happens at the first time alone."""
    return lambda state: after if state == before else state


def _name(chance: random.Random, world: World, state: State) -> str:
    return world.prefix + chance.choice(NAMES) if not state.logs or chance.random() < 0.4 else chance.choice(sorted(state.logs))


def _append(chance: random.Random, world: World, state: State, folder: Path) -> Case:
    name = _name(chance, world, state)
    log = state.logs.get(name)
    files = draw_files(chance, folder, log)
    merge, create = chance.random() < 0.4, chance.random() < (0.5 if log else 0.9)
    words = ["log", "append", name, *(str(file.path) for file in files)]
    words += ["--merge-schema"] * merge + ["--create"] * create
    types = types_option(files)
    if types:
        words += ["--types", types]
    if chance.random() < 0.3:
        words += ["--json"]
    with_application = chance.random() < 0.3
    if with_application:
        words += ["--application", f"loader:{folder.name}:1"]
    if log is None and not create:
        return Case(tuple(words), refused)
    found = wanted_log(log, files, merge=merge)
    if found is None:
        return Case(tuple(words), refused)
    columns, rows = found

    def once_more(before: State) -> State:
        return before.with_log(name, (before.logs.get(name) or LogState()).appended(columns, rows))

    effect = _once(state, once_more(state)) if with_application else once_more
    return Case(tuple(words), effect)


def _read(chance: random.Random, world: World, state: State, folder: Path) -> Case:
    name = _name(chance, world, state)
    log = state.logs.get(name)
    form = chance.choice(READ)
    if log is None or log.is_entries or not log.columns or chance.random() < 0.4:
        words = ["log", chance.choice(["read", "show"]), name]
        return Case(tuple(words), nothing if log is not None else refused)
    output = folder / f"rows.{form}"
    words = ["log", "read", name, "--output", str(output)]
    words += ["--format", form] if chance.random() < 0.5 else []
    held = b"before" if chance.random() < 0.5 else None
    if held is not None:
        output.write_bytes(held)
    return Case(tuple(words), nothing, output=str(output), held=held, about=name)


def _truncate(chance: random.Random, world: World, state: State) -> Case:
    several = sorted(one for one, it in state.logs.items() if len(it.ledgers) > 1 and not it.is_entries)
    name = chance.choice(several) if several and chance.random() < 0.8 else _name(chance, world, state)
    log = state.logs.get(name)
    ids = world.ids.get(name, [])
    if log is None or log.is_entries or not ids or len(ids) != len(log.ledgers):
        return Case(("log", "truncate", name, "--before", "999999999"), refused if log is None or not log.is_entries else None)
    place = chance.randrange(len(ids))
    after = log if place == 0 else replace(log, version=log.version + 1, ledgers=log.ledgers[place:])
    words = ("log", "truncate", name, "--before", str(ids[place]))
    return Case(words, _once(state, state.with_log(name, after)), may_conflict=True)


def _set(chance: random.Random, world: World, state: State) -> Case:
    name = _name(chance, world, state)
    log = state.logs.get(name)
    kept = chance.choice([86_400, 604_800]), chance.choice([None, 10**8]), chance.choice([None, 2**40])
    words = ["log", "set", name]
    for option, value in zip(("version-retention-s", "retention-s", "retention-bytes"), kept, strict=True):
        words += [f"--{option}", "none" if value is None else str(value)]
    return Case(
        tuple(words),
        refused if log is None else lambda before: before.with_log(name, replace(before.logs[name], retention=kept)),
    )


def _delete(chance: random.Random, world: World, state: State) -> Case:
    name = _name(chance, world, state)
    if name not in state.logs:
        return Case(("log", "delete", name), None if name in world.half_deleted else refused)
    return Case(("log", "delete", name), lambda before: before.with_log(name, None), may_conflict=True)


def _recover(chance: random.Random, world: World, state: State) -> Case:
    name = _name(chance, world, state)
    log = state.logs.get(name)
    if log is None:
        return Case(("log", "recover", name), refused)
    if not log.open_ledgers:
        return Case(("log", "recover", name))

    def one_commit(before: State) -> State:
        return before.with_log(name, replace(before.logs[name], version=before.logs[name].version + 1, open_ledgers=0))

    return Case(("log", "recover", name), one_commit, may_conflict=True)


def _ledger(chance: random.Random, state: State) -> Case:
    if not state.ledgers:
        return Case(("ledger", "show", "999999999"), refused)
    ledger_id = chance.choice(sorted(state.ledgers))
    what = chance.choice(["show", "read", "recover", "delete"])
    words = ("ledger", what, str(ledger_id))
    if what == "delete":
        return Case(words, lambda before: before.with_ledger(ledger_id, None), may_conflict=True)
    if what == "recover":
        return Case(words, lambda before: before.with_ledger(ledger_id, ("closed", 2)), may_conflict=True)
    return Case(words)


def _of_bookie(chance: random.Random, world: World) -> Case:
    bookie = chance.choice(world.cluster.bookies)
    if chance.random() < 0.5:
        return Case((*chance.choice(OF_A_BOOKIE).split(), bookie.bookie_id))
    return Case((*chance.choice(OF_FILES).split(), "--data-dir", str(bookie.data_dir)))


def _of_stopped_bookie(chance: random.Random, world: World, folder: Path) -> Case:
    """A bookie that was formatted and never started."""
    directory = folder / "stopped"
    store, znodes = world.client.metadata_store, world.client.znodes
    bookie_id = format_bookie(Directories.of(directory, BookieConfig()), store, znodes, "127.0.0.1:3999")
    words = chance.choice(OF_A_STOPPED_BOOKIE).split()
    words += [bookie_id] if words[0] == "cookie" else []
    return Case((*words, "--data-dir", str(directory)), may_conflict=True)


def _of_whole_cluster(chance: random.Random, world: World) -> Case:
    """Nothing of it changes what the model knows; an auditor may be there or not."""
    words = chance.choice([("auditor", "trigger"), ("bookie", "gc", "suspend", chance.choice(world.cluster.bookies).bookie_id)])
    return Case(words, None)


def _abbreviated(chance: random.Random) -> Case:
    return Case((*chance.choice(LOOKS).split(), chance.choice(ABBREVIATED)), refused, is_wrong_usage=True)


def _autorecovery(chance: random.Random) -> Case:
    word = chance.choice(["enable", "disable"])
    return Case(("autorecovery", word), lambda before: replace(before, autorecovery=word == "enable"))


def _wrong(chance: random.Random, world: World) -> Case:
    """Any command with arguments that it cannot take, and a name that nothing has."""
    groups = [
        *LOOKS,
        *OF_FILES,
        *NOT_DRAWN,
        "log append",
        "log read",
        "log truncate",
        "ledger read",
        "ledger delete",
        "log set",
    ]
    words = chance.choice(groups).split()
    words += chance.sample([*WRONG, f"{world.prefix}nobody", "999999999"], chance.randint(1, 3))
    words += ["--no-such-option"] if " ".join(words[:2]) in NOT_DRAWN or words[0] in NOT_DRAWN else []
    return Case(tuple(word.replace("\x00", "\\0") for word in words), None)
