"""Where files lie that are not in ledgers: a disk, or an object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from bk_spark.errors import CorruptionError, StorageError

_TRIES = 5
"""Of one request to an object store, with growing pauses between them: some 10 s in all."""
_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S = 5.0, 30.0
_RETRIES_OF_GOOGLE = f"?retry_limit_seconds={_REQUEST_TIMEOUT_S:g}"
"""Of one request to Google's store, which is asked for 15 minutes otherwise."""
_S3_PROPERTIES = {"s3.endpoint": "endpoint_override", "s3.region": "region", "s3.role-arn": "role_arn"}


def store_with(properties: Mapping[str, str]) -> FileStore:
    """The store with these properties, of which only those of _S3_PROPERTIES matter. A process shares its connections."""
    return _shared_store(tuple(sorted((key, value) for key, value in properties.items() if key in _S3_PROPERTIES)))


@lru_cache(maxsize=16)
def _shared_store(properties: tuple[tuple[str, str], ...]) -> FileStore:
    return FileStore(dict(properties))


class FileGoneError(CorruptionError):
    """A file is not there: others have deleted it. The rows of one of a tier are perhaps in another one."""


class FileStore:
    """Reads and writes files by their address. Threads may share it.

    All methods raise StorageError where the store does not answer or refuses; then nothing is known of the file.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._systems: dict[str, fs.FileSystem] = {}

    def open_input(self, address: str) -> pa.NativeFile:
        """For reading at any place. Raises FileGoneError."""
        with _asked(f"reading {address}"):
            system, path = self._at(address)
            try:
                return system.open_input_file(path)
            except FileNotFoundError:
                raise FileGoneError(f"file {address}", "it is gone") from None

    def read_at(self, address: str, file: pa.NativeFile, at: int, count: int) -> bytes:
        """Bytes of a file that ``open_input`` gave for the address; fewer at its end. Raises FileGoneError."""
        with _asked(f"reading {address}"):
            try:
                found: bytes = file.read_at(count, at)
            except FileNotFoundError:
                raise FileGoneError(f"file {address}", "it is gone") from None
            return found

    @contextmanager
    def created(self, address: str) -> Iterator[pa.NativeFile]:
        """A new file, which is whole and durable behind the block. If the block fails, a part of it may stay."""
        with _asked(f"writing {address}"):
            system, path = self._at(address)
            if isinstance(system, fs.LocalFileSystem):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with system.open_output_stream(path) as out:
                yield out
            if isinstance(system, fs.LocalFileSystem):
                _force(path)

    def size(self, address: str) -> int | None:
        """In bytes; None if there is no such file."""
        with _asked(f"looking for {address}"):
            system, path = self._at(address)
            found = system.get_file_info(path)
            return int(found.size) if found.type is fs.FileType.File else None

    def folders(self, address: str) -> list[str]:
        """The names of the folders in a folder; none if there is no such folder."""
        with _asked(f"listing {address}"):
            system, path = self._at(address)
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return [one.base_name for one in found if one.type is fs.FileType.Directory]

    def files(self, address: str) -> list[str]:
        """The addresses of all files below a folder; none if there is no such folder."""
        with _asked(f"listing {address}"):
            system, path = self._at(address)
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
            return [address + one.path[len(path) :] for one in found if one.type is fs.FileType.File]

    def delete(self, address: str) -> None:
        """A file; nothing happens if it is not there."""
        with _asked(f"deleting {address}"):
            system, path = self._at(address)
            with suppress(FileNotFoundError):
                system.delete_file(path)

    def delete_folder(self, address: str) -> None:
        """With all that is in it; nothing happens if it is not there."""
        with _asked(f"deleting {address}"):
            system, path = self._at(address)
            for left in reversed(range(_TRIES)):
                try:
                    if system.get_file_info(path).type is fs.FileType.Directory:
                        system.delete_dir(path)
                    return
                except FileNotFoundError:  # somebody else deletes it, too
                    if not left:
                        raise

    def _at(self, address: str) -> tuple[fs.FileSystem, str]:
        if address.startswith("file:"):  # Hadoop writes file:/data, others file:///data
            return fs.LocalFileSystem(), "/" + address.removeprefix("file:").lstrip("/")
        scheme, _, path = address.partition("://")
        if scheme == "s3":
            return self._known("s3", self._s3), path
        authority = path.partition("/")[0]
        uri = f"{scheme}://{authority}{_RETRIES_OF_GOOGLE}" if scheme in ("gs", "gcs") else address
        system = self._known(f"{scheme}://{authority}", lambda: fs.FileSystem.from_uri(uri)[0])
        # gs://anonymous@bucket/…, and abfs://container@account/…
        bucket = authority.rpartition("@")[2] if scheme.startswith("g") else authority.partition("@")[0]
        return system, f"{bucket}/{path.partition('/')[2]}"

    def _known(self, which: str, made: Callable[[], fs.FileSystem]) -> fs.FileSystem:
        if which not in self._systems:
            self._systems[which] = made()
        return self._systems[which]

    def _s3(self) -> fs.FileSystem:
        given: dict[str, Any] = {name: self._properties[key] for key, name in _S3_PROPERTIES.items() if key in self._properties}
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES)
        timeouts = {"connect_timeout": _CONNECT_TIMEOUT_S, "request_timeout": _REQUEST_TIMEOUT_S}
        return fs.S3FileSystem(**given, **timeouts, retry_strategy=retries)


@contextmanager
def _asked(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        raise StorageError(what, str(problem)) from problem


def _force(path: str) -> None:
    """The file, and the folders that name it."""
    for one in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
