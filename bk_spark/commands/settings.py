"""Settings of processes as options of commands, one for each field of the settings class.

A bookie's settings may also be lines of the TOML file that ``--config`` names. Options override the file, the file
overrides the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bk_spark.bookie.directories import Directories
from bk_spark.commands.arguments import (
    Commands,
    Handler,
    command,
    directory,
    number,
    plain_text,
    setting_help,
    size_bytes,
    whole_number,
)
from bk_spark.commands.connect import bookie_auth, zookeeper_auth
from bk_spark.commands.program.parser import UsageError
from bk_spark.config import TLS_NAMES, BookieConfig
from bk_spark.errors import ConfigError

_OF_EVERY_COMMAND = (*TLS_NAMES, "zookeeper_auth", "bookie_auth")

Made = TypeVar("Made")

_WORDS = {"true": True, "false": False}


def data_dir_command(group: Commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:
    """A command on the files of one bookie. ``add_settings`` comes last in it."""
    parser = command(group, name, text, handler)
    parser.add_argument("--data-dir", type=directory, metavar="D", required=True, help="the bookie's directory")
    return parser


def add_settings(parser: argparse.ArgumentParser) -> None:
    """``--config``, and an option for every field of BookieConfig that is not already an option of every command."""
    group = parser.add_argument_group("settings", "sizes in bytes or such as 64m, times in seconds")
    group.add_argument(
        "--config", metavar="FILE", help="a TOML file of settings, such as 'gc_interval_s = 60.0'; options go before it"
    )
    add_fields(group, BookieConfig, _shown, leave_out=_OF_EVERY_COMMAND)


def add_fields(
    group: argparse._ArgumentGroup, config: type, shown: Callable[[Any], str], leave_out: tuple[str, ...] = ()
) -> None:
    """An option for every field of a settings class. ``shown`` formats the default for the help."""
    for field in dataclasses.fields(config):
        if field.name in leave_out:
            continue
        kind = type(field.default)
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            dest=field.name,
            type=size_bytes if _is_size(field.name) else _KINDS[kind],
            metavar={str: "TEXT", bool: "true|false"}.get(kind, "N"),
            help=setting_help(config, field.name, shown(field.default)),
        )


def given_fields(args: argparse.Namespace, config: type) -> dict[str, Any]:
    """The fields whose options were given."""
    values = {field.name: getattr(args, field.name, None) for field in dataclasses.fields(config)}
    return {name: value for name, value in values.items() if value is not None}


def bookie_config(args: argparse.Namespace) -> BookieConfig:
    """The settings of the options and of the file.

    Raises UsageError, or ConfigError where the file is wrong, which name the wrong setting.
    """
    from_file = _read(Path(args.config)) if args.config else {}
    secrets = {"zookeeper_auth": zookeeper_auth(args), "bookie_auth": bookie_auth(args)}
    with_auth = {**from_file, **{name: secret for name, secret in secrets.items() if secret}}
    BookieConfig(**with_auth)
    return with_options(lambda given: BookieConfig(**{**with_auth, **given}), given_fields(args, BookieConfig))


def with_options(made: Callable[[dict[str, Any]], Made], given: dict[str, Any]) -> Made:
    """Settings with the fields whose options were given. Raises UsageError where a value cannot be."""
    try:
        return made(given)
    except ConfigError as problem:
        raise UsageError(str(problem)) from None


def bookie_directories(args: argparse.Namespace) -> Directories:
    """The directories of the bookie that ``--data-dir`` and the settings name. Raises ConfigError."""
    return Directories.of(Path(args.data_dir), bookie_config(args))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as problem:
        raise ConfigError("--config", str(path), f"it cannot be read ({problem.strerror})") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError("--config", str(path), f"it is not TOML ({problem})") from problem
    fields = BookieConfig.__dataclass_fields__
    for name, value in found.items():
        if name not in fields:
            raise ConfigError(f"a setting in {path}", name, f"there is none of this name, there are {', '.join(fields)}")
        if fields[name].type == "str" and not isinstance(value, str):
            shown = value if fields[name].repr else "(not shown)"
            raise ConfigError(f"{name} in {path}", shown, "it must be a text in quotation marks")
        if _is_size(name) and isinstance(value, str):
            found[name] = _size(f"{name} in {path}", value)
    return found


def _is_size(name: str) -> bool:
    """Whether a setting counts bytes, or bytes a second."""
    return name.endswith(("_bytes", "_bytes_per_s"))


def _size(what: str, value: str) -> int:
    try:
        return size_bytes(value)
    except argparse.ArgumentTypeError as problem:
        raise ConfigError(what, value, str(problem)) from None


def _boolean(text: str) -> bool:
    if text not in _WORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _WORDS[text]


_KINDS: dict[type, Callable[[str], Any]] = {bool: _boolean, int: whole_number, float: number, str: plain_text}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default).replace("%", "%%") or "empty"
