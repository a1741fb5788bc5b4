"""One history: random calls by several identities through two gateways, and the model's answer to each."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.soak.callers.model import COLUMNS, MORE, AskedRows, Chunk, NoAnswerError, Outcome, Row, expected, rows_of, sizes
from tests.soak.callers.stage import JUDGE, chosen, stage, table

STEPS = 40
LOGS = ("orders", "shop.a", "shop*")
CALLERS = ("loader", "reader", "owner")
STRANGERS = ("", "bks_nothing", "stranger")
"""What else is shown as a token: nothing, and what is none."""
PATTERNS = ("orders", "shop.*", "shop*", "*", "other")
RIGHTS = ("read", "append", "manage")
APPLICATIONS = ("a", "b")
TEXTS = ("x", "y", None)
MOST_ROWS = 8
KEPT_TICKETS = 20


class DifferenceError(AssertionError):
    """A gateway's answer is not the model's."""


@dataclass(frozen=True)
class KeptTicket:
    """One that was given, for a version of a log that was."""

    ticket: bytes
    log: str
    life: int
    rows: list[Row]


class History:
    """Drawn from ``seed``. ``run`` raises DifferenceError."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self._chance = random.Random(seed)
        self._steps = steps
        self._ids = 0
        self._tickets: list[KeptTicket] = []
        self._touched = LOGS[0]
        self.calls = 0
        self.refused = 0

    def run(self) -> None:
        with stage() as self._stage:
            self._world = self._stage.world
            for name in CALLERS:
                self._stage.create_token(name)
                self._grant(name)
            for _ in range(self._steps):
                self._step()
                self._look()

    def _step(self) -> None:
        chosen(
            self._chance,
            (10, self._append),
            (8, self._read),
            (4, self._redeem),
            (2, self._follow),
            (1, self._create),
            (2, self._delete),
            (2, self._truncate),
            (2, self._list),
            (3, self._change_rights),
        )()

    # Operators

    def _change_rights(self) -> None:
        name, world = self._chance.choice(CALLERS), self._world
        own = sorted(one for one in world.grants if one[0] == name)
        if self._chance.random() < 0.25:
            (self._stage.revoke_token if name in world.callers else self._stage.create_token)(name)
        elif own and self._chance.random() < 0.5:
            self._stage.remove(*self._chance.choice(own))
        else:
            self._grant(name)

    def _grant(self, name: str) -> None:
        rights = self._chance.sample(RIGHTS, self._chance.randint(1, 3))
        self._stage.grant(name, self._chance.choice(PATTERNS), *rights)

    # Calls that change a log

    def _append(self) -> None:
        chance, world = self._chance, self._world
        caller, log = self._caller(), self._log()
        columns = (*COLUMNS, MORE) if chance.random() < 0.2 else COLUMNS
        chunk = Chunk(tuple(self._row(columns) for _ in range(chance.randint(1, MOST_ROWS))), columns)
        create, merge = chance.random() < (0.3 if log in world.logs else 0.9), chance.random() < 0.3
        application = self._drawn_application(caller, log) if chance.random() < 0.6 else None
        own = application and (_own(caller, application[0]), application[1])
        fields: dict[str, Any] = {"log": log, "create": create, "merge_schema": merge, "application": application}
        given = {name: value for name, value in fields.items() if value}
        end, sent = self._end_of(chunk)
        given |= end[0]

        def answer() -> Any:
            if sent is not None:
                self._check_appendable(log, create=create)
                raise NoAnswerError(Outcome.WRONG)
            version, already = world.append(log, chunk, own, create=create, merge=merge)
            return {"version": version, "rows": len(chunk.rows), "already": already}

        needed = ("append", "manage") if create or merge else ("append",)
        rows = table(chunk.rows if sent is None else chunk.rows[:sent], columns)
        places = [0, 1] if application and sent is None and chance.random() < 0.2 else [chance.randrange(2)]
        if len(places) == 1:
            found = self._stage.append(places[0], caller, rows, end[1], **given)
            self._compare(found, expected(answer, lambda: world.check(caller, log, *needed)), f"append of {caller}: {given}")
            return
        both = self._side_by_side(lambda place: self._stage.append(place, caller, rows, end[1], **given))
        first = expected(answer, lambda: world.check(caller, log, *needed))
        again = expected(answer, lambda: world.check(caller, log, *needed))
        self._compare(_sorted(both), _sorted([first, again]), f"append of {caller} at both gateways at once: {given}")

    def _drawn_application(self, caller: str, log: str) -> tuple[str, int]:
        """Half of the time one that the log has already, if it has any, or the one behind it."""
        name, model = self._chance.choice(APPLICATIONS), self._world.logs.get(log)
        last = 0 if model is None else model.applications.get(_own(caller, name), (0, 0))[0]
        return name, max(1, last + self._chance.choice((-1, 0, 1, 1, 3)))

    def _check_appendable(self, log: str, *, create: bool) -> None:
        """An append that is cut off is found out behind what is wrong with its log."""
        if not create:
            self._world.log(log)

    def _end_of(self, chunk: Chunk) -> tuple[tuple[dict[str, Any], bytes], int | None]:
        """How a caller says that all has come; and how many rows it sends, where that is not all."""
        count, kind = len(chunk.rows), self._chance.random()
        if kind < 0.6:
            return ({"rows": count}, b""), None
        if kind < 0.75:
            return ({}, b'{"end": true}'), None
        if kind < 0.85:
            return ({"rows": count}, b""), self._chance.randrange(count)
        if kind < 0.95:
            return ({}, b""), count
        return ({"rows": count - 1}, b""), count

    def _create(self) -> None:
        caller, log = self._caller(), self._log()
        found = self._stage.act(self._place(), caller, "create", log=log)
        wanted = expected(
            lambda: [{"log": log, "version": self._world.create(log)}], lambda: self._world.check(caller, log, "manage")
        )
        self._compare(found, wanted, f"creation of {log} by {caller}")

    def _delete(self) -> None:
        caller, log = self._caller(), self._log()
        found = self._stage.act(self._place(), caller, "delete", log=log)

        def answer() -> Any:
            self._world.delete(log)
            return [{"log": log, "deleted": True}]

        self._compare(
            found, expected(answer, lambda: self._world.check(caller, log, "manage")), f"deletion of {log} by {caller}"
        )

    def _truncate(self) -> None:
        caller, log = self._caller(), self._log()
        shown = self._stage.act(self._place(), JUDGE, "show", log=log)
        if isinstance(shown, Outcome) or not shown[0]["ledgers"]:
            return
        first = self._chance.randrange(len(shown[0]["ledgers"]))
        found = self._stage.act(self._place(), caller, "truncate", log=log, before=[shown[0]["ledgers"][first]["ledger"], 0])
        wanted = expected(lambda: self._world.truncate(log, first), lambda: self._world.check(caller, log, "manage"))
        self._compare(found if isinstance(found, Outcome) else found[0]["version"], wanted, f"truncation of {log} by {caller}")

    # Calls that look

    def _read(self) -> None:
        caller, log = self._caller(), self._log()
        asked, fields = self._drawn_read(log)
        parts = self._chance.choice((1, 1, 2, 5))
        plan = self._stage.plan(self._place(), caller, log=log, endpoints=parts, **fields)
        wanted = expected(lambda: self._world.read(log, asked), lambda: self._world.check(caller, log, "read"))
        what = f"read of {log} by {caller}: {fields}"
        if isinstance(plan, Outcome):
            self._compare(plan, wanted, what)
            return
        tickets, total = plan
        if isinstance(wanted, list) and total not in (-1, len(wanted)):
            raise DifferenceError(f"{what} gives {total} rows by its plan, in place of {len(wanted)}")
        found = [self._stage.redeem(self._place(), caller, one) for one in tickets]
        failed = [one for one in found if isinstance(one, Outcome)]
        self._compare(failed[0] if failed else [row for part in found for row in part], wanted, what)
        if isinstance(wanted, list) and len(tickets) == 1:
            kept = KeptTicket(tickets[0], log, self._world.logs[log].life, wanted)
            self._tickets = [*self._tickets[-KEPT_TICKETS:], kept]

    def _drawn_read(self, log: str) -> tuple[AskedRows, dict[str, Any]]:
        chance, model = self._chance, self._world.logs.get(log)
        columns = chosen(chance, (5, None), (2, ("text", "id")), (1, ("id",)), (1, (MORE,)), (1, ("id", "none")))
        least = chance.randint(0, self._ids) if chance.random() < 0.3 else None
        asked = AskedRows(columns, least, "x" if chance.random() < 0.2 else None)
        if model is not None and chance.random() < 0.4:
            asked = replace(asked, version=chance.randint(0, model.number + (chance.random() < 0.1)))
        fields: dict[str, Any] = {"columns": columns, "where": asked.where, "version": asked.version}
        if model is not None and chance.random() < 0.4:
            asked, places = self._drawn_places(log, asked)
            fields |= places
        return asked, {name: value for name, value in fields.items() if value is not None}

    def _drawn_places(self, log: str, asked: AskedRows) -> tuple[AskedRows, dict[str, Any]]:
        """From ledger to ledger of the newest version."""
        shown = self._stage.act(self._place(), JUDGE, "show", log=log)
        ledgers = [one["ledger"] for one in shown[0]["ledgers"]]
        if len(ledgers) < 2:
            return asked, {}
        first, last = sorted(self._chance.sample(range(len(ledgers)), 2))
        asked = replace(asked, version=None, first=first, last=last)
        return asked, {"version": None, "start": [ledgers[first], 0], "end": [ledgers[last], 0]}

    def _redeem(self) -> None:
        """A ticket of before gives what it gave, or says that its log is another one by now."""
        if not self._tickets:
            return
        kept, caller = self._chance.choice(self._tickets), self._caller()

        def answer() -> Any:
            if self._world.log(kept.log).life != kept.life:
                raise NoAnswerError(Outcome.REPLACED)
            return kept.rows

        found = self._stage.redeem(self._place(), caller, kept.ticket)
        wanted = expected(answer, lambda: self._world.check(caller, kept.log, "read"))
        self._compare(found, wanted, f"{caller} redeems {kept.ticket!r}")

    def _follow(self) -> None:
        caller, log = self._caller(), self._log()
        model = self._world.logs.get(log)
        rows = [] if model is None else model.newest.rows
        if model is not None and not rows:
            return
        wanted = expected(
            lambda: rows_of(self._world.log(log).newest, AskedRows()), lambda: self._world.check(caller, log, "read")
        )
        self._compare(self._stage.follow(self._place(), caller, log, len(rows)), wanted, f"tail of {log} by {caller}")

    def _list(self) -> None:
        caller = self._caller()
        self._compare(self._stage.list(self._place(), caller), expected(lambda: self._world.seen(caller)), f"list of {caller}")

    # After each call

    def _look(self) -> None:
        """The logs as the judge sees them, at a gateway that is drawn: the one that the call was about, and another one."""
        place = self._place()
        self._compare(self._stage.list(place, JUDGE), self._world.seen(JUDGE), "list of the judge")
        for name in {self._touched, self._chance.choice(LOGS)} & self._world.logs.keys():
            log = self._world.logs[name]
            [shown] = self._stage.act(place, JUDGE, "show", log=name)
            found = [shown["version"], [one["rows"] for one in shown["ledgers"]]]
            self._compare(found, [log.number, sizes(log.newest.chunks)], f"version and ledgers of {name}")
            listed = self._stage.act(place, JUDGE, "versions", log=name)
            kept = ("kind", "rows", "added_rows", "removed_rows", "application")
            wanted = [
                [one.kind, len(one.rows), one.added, one.removed, None if one.application is None else list(one.application)]
                for one in log.versions[1:]
            ]
            self._compare([[one[field] for field in kept] for one in listed], wanted, f"versions of {name}")
            if log.newest.columns:
                ticket = b'{"log": "%s"}' % name.encode()
                self._compare(self._stage.redeem(place, JUDGE, ticket), rows_of(log.newest, AskedRows()), f"rows of {name}")

    # Helpers

    def _side_by_side(self, call: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None, None]

        def other() -> None:
            found[1] = call(1)

        thread = threading.Thread(target=other)
        thread.start()
        found[0] = call(0)
        thread.join()
        return found

    def _row(self, columns: tuple[str, ...]) -> Row:
        self._ids += 1
        row: Row = {"id": self._ids, "text": self._chance.choice(TEXTS), MORE: self._chance.choice((None, self._ids))}
        return {name: row[name] for name in columns}

    def _caller(self) -> str:
        return str(chosen(self._chance, (12, JUDGE), (8, self._chance.choice(CALLERS)), (1, self._chance.choice(STRANGERS))))

    def _log(self) -> str:
        """One that there is, mostly. It is looked at afterwards."""
        there = list(self._world.logs)
        self._touched = self._chance.choice(there if there and self._chance.random() < 0.6 else LOGS)
        return self._touched

    def _place(self) -> int:
        return self._chance.randrange(2)

    def _compare(self, found: Any, wanted: Any, what: str) -> None:
        self.calls += 1
        self.refused += isinstance(wanted, Outcome)
        if found != wanted:
            raise DifferenceError(f"{what}\nfound    {found}\nexpected {wanted}")


def _sorted(answers: list[Any]) -> list[str]:
    return sorted(map(repr, answers))


def _own(caller: str, name: str) -> str:
    """The id of an application, as a log keeps it for a caller."""
    return f"token:{caller}/{name}"
