"""The processes of a duel that tier the log, with shipped code; and others at its table (lake.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from bk_spark.errors import CorruptionError, StorageError
from bk_spark.lake.begin import begin_tier
from bk_spark.lake.ports import TableFile
from bk_spark.lake.tierer import Tierer
from bk_spark.lake.vacuum import TierVacuum
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.stored.tier_records import TierSection
from bk_spark.log.stored.values import Head
from tests.simulation.logs.audit import require
from tests.simulation.logs.clients import EXPECTED, rest
from tests.simulation.logs.lake import Lake, Row, SimulatedFiles, SimulatedTable
from tests.simulation.logs.ledgers import ZNODES
from tests.simulation.logs.tree import State
from tests.simulation.logs.world import DAY_MS, LOG, DuelWorld, Machine

MOST_STEPS = 10
"""After everybody else is done: the step under way, one that sets the table right, one for all that is left."""


def tierer_of(machine: Machine) -> Tierer:
    world = machine.world
    return Tierer(machine.logs, LOG, world.uid, SimulatedTable(machine), SimulatedFiles(machine), world.draw_id)


def vacuum_of(machine: Machine) -> TierVacuum:
    return TierVacuum(machine.logs, LOG, machine.world.uid, SimulatedTable(machine), SimulatedFiles(machine))


def tierer(rounds: int) -> Callable[[Machine], None]:
    """Tiers some ledgers, and releases sections, now and then."""

    def body(machine: Machine) -> None:
        world = machine.world
        vacuums = world.choices.choose(2, "vacuums")
        for _ in range(rounds):
            rest(machine)
            count = world.choices.choose(5, "ledgers to tier")
            try:
                begin_tier(machine.logs, LOG, world.uid, "table")
                if world.choices.choose(12, "gives up") == 11:
                    world.marks["steps given up"] += tierer_of(machine).give_up()
                world.marks["steps"] += tierer_of(machine).run(lambda waiting, count=count: min(count, len(waiting)))
                if world.choices.choose(2, "release"):
                    tierer_of(machine).release(world.choices.between(1, 4, "sections"))
                    world.marks["releases"] += 1
                if vacuums and world.choices.choose(3, "vacuum") == 2:
                    world.now_ms += world.choices.pick((0, 2 * DAY_MS, 9 * DAY_MS), "until the vacuum")
                    world.marks["ledgers vacuumed"] += LogVacuum(machine.logs).run(LOG).deleted_ledgers
                    world.marks["vacuums of the tier"] += vacuum_of(machine).run(0)
            except (*EXPECTED, StorageError, CorruptionError) as problem:
                machine.note(f"fails: {problem}")

    return body


def engine(rounds: int, *, deletes: bool = True) -> Callable[[Machine], None]:
    """Another engine's maintenance: joins files of the table, cuts them anew, and ``deletes`` the old ones now and then."""

    def body(machine: Machine) -> None:
        world, lake = machine.world, machine.world.the_lake
        for number in range(rounds):
            rest(machine)
            base = lake.newest
            if len(base.files) < 2:
                continue
            start = world.choices.choose(len(base.files), "first file")
            joined = base.files[start : start + 3]
            rows = [row for one in joined for row in lake.files[one.path]]
            machine.turn("joins files")
            if lake.newest.snapshot != base.snapshot or any(one.path not in lake.files for one in joined):
                continue
            cut = world.choices.choose(len(rows) + 1, "first file's rows")
            parts = {f"others/{machine.name}-{number}-{n}": part for n, part in enumerate((rows[:cut], rows[cut:])) if part}
            lake.files |= parts
            stay = tuple(one for one in base.files if one not in joined)
            added = (TableFile(path, len(part), has_log_rows=True, has_other_rows=False) for path, part in parts.items())
            lake.put(replace(base, files=(*stay, *added)))
            world.marks["joined files"] += 1
            if deletes and world.choices.choose(2, "expires"):
                lake.expire(len(lake.states) - 1, version=-1)
                for path in sorted(lake.ever - lake.paths()):
                    lake.files.pop(path, None)

    return body


def restorer(rounds: int) -> Callable[[Machine], None]:
    """Sets the catalog back to an earlier state."""

    def body(machine: Machine) -> None:
        machine.world.the_lake.may_be_set_back = True
        for _ in range(rounds):
            rest(machine)
            set_back(machine)

    return body


def set_back(machine: Machine) -> None:
    machine.turn("sets the catalog back")
    lake = machine.world.the_lake
    lake.restore(machine.world.choices.pick(lake.kept, "to which state"))
    machine.world.marks["catalogs set back"] += 1


def check_tier(world: DuelWorld) -> None:
    """At the end, when everything was tiered that can be; and every ledger of a version that can be read is somewhere whole."""
    state = world.tree.newest
    lost = [one for one in world.audit.readable() if ZNODES.ledger(one) not in state and not _is_released(world, one, state)]
    require(not lost, "L6", f"readable versions list ledgers that are gone: {lost}")
    listed = list(world.audit.listings[-1])
    expected = sorted((one, n, payload) for one in listed for n, payload in enumerate(world.audit.entries(one)))
    world.the_lake.check_files()
    found = world.the_lake.rows()
    require(found == expected, "T2", f"the table has {len(found)} rows, the log has {len(expected)}")


def tier_all(machine: Machine) -> None:
    """Nothing fails here, whatever was left behind."""
    begin_tier(machine.logs, LOG, machine.world.uid, "table")
    for _ in range(MOST_STEPS):
        if not tierer_of(machine).run(len):
            mark = machine.logs.names.fresh_head(LOG, machine.world.uid).tier
            assert mark is not None, "it was begun above"
            tierer_of(machine).release(mark.sections)
            return
    require(False, "T5", f"it tiers on and on, after {MOST_STEPS} steps in which nobody else did anything")


def vacuum_tier(machine: Machine) -> None:
    """Nothing fails here, and no version but the newest can be read."""
    if not vacuum_of(machine).run(machine.world.now_ms):
        return
    check_tier(machine.world)
    left = sorted(set(machine.world.the_lake.files) - machine.world.the_lake.paths())
    own = [one for one in left if not one.startswith("others/")]
    require(not own, "T6", f"files are left that nobody needs: {own[:3]}")
    machine.world.marks["whole vacuums of the tier"] += 1


def give_lake(world: DuelWorld) -> None:
    world.lake = Lake(world.uid)
    world.audit.is_released = lambda ledger_id, state: _is_released(world, ledger_id, state)


def _is_released(world: DuelWorld, ledger_id: int, state: State) -> bool:
    """Whether a released section has the ledger, and its files its rows; or the table, if others have just joined the files."""
    paths = world.audit.paths
    mark = Head.decode("head", state[paths.head].value).tier
    for number in range(mark.oldest, mark.released) if mark else ():
        section = TierSection.decode("section", state[paths.tier_section(number)].value)
        if ledger_id in [one.ledger_id for one in section.ledgers]:
            lake, expected = world.the_lake, world.audit.entries(ledger_id)
            recorded = {row for one in section.files_of(ledger_id) for row in lake.files.get(one.path, [])}
            return expected in (payloads_of(ledger_id, recorded), payloads_of(ledger_id, lake.rows()))
    return False


def payloads_of(ledger_id: int, rows: Iterable[Row]) -> list[bytes]:
    return [payload for owner, _, payload in sorted(rows) if owner == ledger_id]
