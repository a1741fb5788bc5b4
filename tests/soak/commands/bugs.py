"""Deliberate bugs of commands: the net is to find each of them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bk_spark import cli
from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands import log_rows
from bk_spark.commands.program.process import Signals
from bk_spark.commands.row_files import append_files, output_file
from bk_spark.commands.row_files.csv_source import CsvSource
from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.log.log_handle import Log, LogPosition


@dataclass(frozen=True, slots=True)
class Bug:
    what: str
    plant: Callable[[], None]


def _traceback() -> None:
    known = log_rows.named_files

    def named(paths: list[str], form: str | None) -> Any:
        try:
            return known(paths, form)
        except ConfigError as problem:
            raise ValueError(problem.remedy) from None

    log_rows.named_files = named


def _success() -> None:
    known = cli._run

    def run(args: argparse.Namespace, signals: Signals | None = None) -> int:
        known(args, signals)
        return 0

    cli._run = run


def _second_sentence() -> None:
    def text(self: NoSuchLogError) -> str:
        return f"there is no log '{self.name}'\nperhaps it was deleted"

    NoSuchLogError.__str__ = text  # type: ignore[method-assign]


def _empty_log() -> None:
    known = log_rows._stored_schema

    def stored(client: BookKeeper, args: argparse.Namespace) -> Any:
        if args.create:
            client.open_log(args.name, create=True)
        return known(client, args)

    log_rows._stored_schema = stored


def _dropped_column() -> None:
    known = append_files.one_schema

    def first_only(log: str, stored: Any, files: Any, *, merge: bool) -> Any:
        return known(log, stored, files[:1], merge=merge)

    append_files.one_schema = first_only


def _commit_for_each_file() -> None:
    known = BookKeeper.append_rows

    def append(self: BookKeeper, name: str, rows: Any, application: Any = None, **options: Any) -> Any:
        version = None
        for batch in rows:
            version = known(self, name, batch, application, **options)
        assert version is not None
        return version

    BookKeeper.append_rows = append  # type: ignore[method-assign]


def _application_forgotten() -> None:
    known = BookKeeper.append_rows

    def append(self: BookKeeper, name: str, rows: Any, application: Any = None, **options: Any) -> Any:
        return known(self, name, rows, None, **options)

    BookKeeper.append_rows = append  # type: ignore[method-assign]


def _in_place() -> None:
    @contextlib.contextmanager
    def replaced(path: Path) -> Iterator[BinaryIO]:
        with path.open("wb") as file:
            yield file

    output_file._replaced = replaced


def _open_quote() -> None:
    def without(self: CsvSource, batches: Any, end: str) -> Any:
        for batch in batches:
            is_end = batch.num_rows and batch.column(0)[-1].as_py() == end
            yield batch.slice(0, batch.num_rows - 1) if is_end else batch

    CsvSource._without_last_row = without  # type: ignore[method-assign]


def _too_much_truncated() -> None:
    known = Log.truncate

    def truncate(self: Log, before: LogPosition) -> Any:
        ids = [one.ledger_id for one in self.ledgers()]
        place = min(ids.index(before.ledger_id) + 1, len(ids) - 1) if before.ledger_id in ids else 0
        return known(self, LogPosition(ids[place], 0))

    Log.truncate = truncate  # type: ignore[method-assign]


def _short_export() -> None:
    known = log_rows._Limited.__init__

    def limited(self: log_rows._Limited, batches: Any, limit: int | None) -> None:
        known(self, batches, 20 if limit is None else limit)

    log_rows._Limited.__init__ = limited  # type: ignore[method-assign]


def _closed_stdout() -> None:
    cli.open_streams = lambda: None


def _abbreviations() -> None:
    known = argparse.ArgumentParser.__init__

    def init(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        known(self, *args, **{**kwargs, "allow_abbrev": True})

    argparse.ArgumentParser.__init__ = init  # type: ignore[method-assign]


BUGS = {
    "traceback": Bug("a wrong file ends the command with a traceback", _traceback),
    "success": Bug("a failed command exits with 0", _success),
    "second-sentence": Bug("an error has two lines", _second_sentence),
    "empty-log": Bug("a failed append --create leaves an empty log", _empty_log),
    "dropped-column": Bug("columns that only later files have are dropped", _dropped_column),
    "commit-for-each-file": Bug("each part of an append is a commit of its own", _commit_for_each_file),
    "application-forgotten": Bug("the same application's append goes in twice", _application_forgotten),
    "in-place": Bug("a file that is written is cut off when the command is killed", _in_place),
    "open-quote": Bug("what a CSV file lacks at its end is not missed", _open_quote),
    "short-export": Bug("a file gets the first rows alone", _short_export),
    "closed-stdout": Bug("closed streams and narrow encodings are left as they are", _closed_stdout),
    "abbreviations": Bug("abbreviated options are taken", _abbreviations),
    "too-much-truncated": Bug("a truncation removes one ledger more", _too_much_truncated),
}
