"""Many files as one stream of rows for one append: first all of them are looked at, then each is read and sent.

The first look tells the columns of each file and their types; nothing is written before every file has passed it. A file that
changes before the second reading ends the append. Memory holds some batches, never a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.commands.output import ProgressBar
from bk_spark.commands.row_files.csv_source import CsvSource
from bk_spark.commands.row_files.guessed_types import GuessedColumn, merged_type, only_fields_of
from bk_spark.commands.row_files.json_source import JsonSource
from bk_spark.commands.row_files.named_file import NamedFile, one_line
from bk_spark.commands.row_files.one_schema import FileColumns, in_schema, one_schema
from bk_spark.commands.row_files.typed.typed_source import TypedSource
from bk_spark.errors import ConfigError
from bk_spark.log.stored.schema import Schema, parse_schema
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.conversion import Conversion

Source = TypedSource | CsvSource | JsonSource


@dataclass(frozen=True, slots=True)
class AppendedFiles:
    """What one call appends."""

    log: str
    stored: Schema | None
    """Spark's JSON of the log's schema; None where the log has none yet."""
    files: list[NamedFile]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Of columns of text files, as ``--types`` gives them."""
    null_values: tuple[str, ...] = ()
    """Texts of CSV that are null if they are not quoted, besides the empty one."""
    merge: bool = False


def read_files(call: AppendedFiles, progress: ProgressBar) -> pa.RecordBatchReader:
    """The rows of all files in the order of the files, with the columns of all of them.

    Raises ConfigError and SchemaMismatchError with the name of the file; the reader raises ConfigError.
    """
    return _Append(call, progress).reader()


class _Append:
    """One call: its files, and what is known of their columns."""

    def __init__(self, call: AppendedFiles, progress: ProgressBar) -> None:
        self._call = call
        self._progress = progress
        self._looked = 0
        self._in_log: dict[str, pa.DataType] = {}
        if call.stored is not None:
            self._in_log = {one.name: one.type for one in arrow_schema(call.stored)}
        self._known = {name: kind for name, kind in self._in_log.items() if not pa.types.is_null(kind)} | dict(call.types)
        """Of columns of text files."""
        self._fixed = set(self._in_log)
        """Columns whose types are not for ``--types`` to say."""
        self._sources = [self._opened(file) for file in call.files]
        self._conversions = {
            place: self._conversion(one.file.path, one.schema)
            for place, one in enumerate(self._sources)
            if isinstance(one, TypedSource)
        }
        self._fixed |= {name for one in self._conversions.values() for name in one.stored.names}

    def _opened(self, file: NamedFile) -> Source:
        if file.form == "json":
            return JsonSource(file, self._fixed)
        return CsvSource(file, self._call.null_values, self._fixed) if file.is_text else TypedSource(file)

    def reader(self) -> pa.RecordBatchReader:
        types = self._types()
        self._check_types(types)
        paths = [source.file.path for source in self._sources]
        files = [FileColumns(paths[place], self._spark_schema(place, own)) for place, own in enumerate(types)]
        schema = one_schema(self._call.log, self._call.stored, files, merge=self._call.merge)
        return pa.RecordBatchReader.from_batches(schema, self._rows(types, schema))

    def _types(self) -> list[dict[str, pa.DataType]]:
        """Of each file. What the log lacks has the type of Parquet and Arrow files, else of JSON, else what all CSV fits."""
        found = {place: {one.name: one.type for one in it.stored} for place, it in self._conversions.items()}
        typed = {name: kind for own in found.values() for name, kind in own.items()}
        self._known = {name: kind for name, kind in typed.items() if not pa.types.is_null(kind)} | self._known
        found |= self._json_types()
        found |= self._csv_types()
        for source, own in ((self._sources[place], own) for place, own in found.items()):
            self._refuse_strangers(source, own)
        return [found[place] for place in range(len(self._sources))]

    def _json_types(self) -> dict[int, dict[str, pa.DataType]]:
        found: dict[int, dict[str, pa.DataType]] = {}
        together: dict[str, pa.DataType] = {}
        for place, source in enumerate(self._sources):
            if isinstance(source, JsonSource):
                found[place] = {}
                for rows, own in source.look(self._known):
                    found[place] = own
                    self._count(rows)
                for name, kind in found[place].items():
                    merged = merged_type(together.get(name, pa.null()), kind)
                    if merged is None:
                        problem = f"column '{name}' is {kind} in it and {together[name]} before: give its type (--types)"
                        raise ConfigError("FILE", source.file.path, problem)
                    together[name] = merged
        self._known = {name: kind for name, kind in together.items() if not pa.types.is_null(kind)} | self._known
        return {
            place: {name: only_fields_of(together[name], kind) for name, kind in own.items()} for place, own in found.items()
        }

    def _csv_types(self) -> dict[int, dict[str, pa.DataType]]:
        sources = {place: one for place, one in enumerate(self._sources) if isinstance(one, CsvSource)}
        guesses = {name: GuessedColumn() for one in sources.values() for name in one.names if name not in self._known}
        for source in sources.values():
            for rows in source.guess(guesses):
                self._count(rows)
        known = {name: guess.type for name, guess in guesses.items()} | self._known
        return {place: {name: known[name] for name in one.names} for place, one in sources.items()}

    def _refuse_strangers(self, source: Source, own: Mapping[str, pa.DataType]) -> None:
        """A text that shares no column with the log is of something else, also where columns may be added."""
        if source.file.is_text and self._in_log and not own.keys() & self._in_log.keys():
            ours = f"the log's are {', '.join(self._in_log)}, the file's {', '.join(own) or 'none'}"
            raise ConfigError("FILE", source.file.path, f"it shares no column with log '{self._call.log}': {ours}")

    def _check_types(self, types: list[dict[str, pa.DataType]]) -> None:
        texts = [own for source, own in zip(self._sources, types, strict=True) if source.file.is_text]
        unused = next((name for name in self._call.types if not any(name in own for own in texts)), None)
        if unused is not None:
            of_texts = "no CSV or JSON file has this column (Parquet and Arrow files have types of their own)"
            raise ConfigError("--types", unused, of_texts)
        if self._call.null_values and all(isinstance(source, (TypedSource, JsonSource)) for source in self._sources):
            raise ConfigError(
                "--null-values", ",".join(self._call.null_values), "no file is CSV; the others have nulls of their own"
            )

    def _spark_schema(self, place: int, own: dict[str, pa.DataType]) -> Schema:
        path = self._sources[place].file.path
        if not own:
            raise ConfigError("FILE", path, "it has no column: there is nothing to append")
        conversion = self._conversions.get(place) or self._conversion(path, pa.schema(list(own.items())))
        return parse_schema(self._call.log, json.dumps(conversion.schema))

    def _conversion(self, path: str, schema: pa.Schema) -> Conversion:
        with _of_file(path):
            return Conversion(self._call.log, schema)

    def _rows(self, types: list[dict[str, pa.DataType]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = 0
        for place, own in enumerate(types):
            path = self._sources[place].file.path
            for batch in self._batches(place, own):
                rows += batch.num_rows
                self._progress.count("rows sent", rows)
                with _of_file(path):
                    whole = in_schema(batch, schema)
                yield whole

    def _batches(self, place: int, own: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        source = self._sources[place]
        if isinstance(source, TypedSource):
            for batch in source.batches():
                with _of_file(source.file.path):
                    stored = self._conversions[place].of(batch)
                yield stored
        elif isinstance(source, JsonSource):
            yield from source.batches(own, self._call.types)
        else:
            yield from source.batches(own)

    def _count(self, rows: int) -> None:
        self._looked += rows
        self._progress.count("rows looked at", self._looked)


@contextmanager
def _of_file(path: str) -> Iterator[None]:
    """What is wrong with a type or a value is told of the file that has it."""
    try:
        yield
    except ConfigError as problem:
        raise ConfigError("FILE", path, str(problem)) from None
    except pa.ArrowException as problem:
        raise ConfigError("FILE", path, f"a value does not fit the column's wider type: {one_line(problem)}") from None
