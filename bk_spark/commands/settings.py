"""A bookie's settings: an option of the command each, or a line each in the TOML file that ``--config`` names.

The command line goes before the file, the file before the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from bk_spark.commands.connect import zookeeper_auth
from bk_spark.commands.setting_texts import setting_help
from bk_spark.config import TLS_NAMES, BookieConfig
from bk_spark.errors import ConfigError

_OF_EVERY_COMMAND = (*TLS_NAMES, "zookeeper_auth")

_WORDS = {"true": True, "false": False}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """An option for every field of BookieConfig that ``command`` has not given every command already, and ``--config``."""
    group = parser.add_argument_group("settings", "sizes in bytes, times in seconds")
    group.add_argument(
        "--config", metavar="FILE", help="a TOML file of settings, such as 'gc_interval_s = 60.0'; options go before it"
    )
    for field in dataclasses.fields(BookieConfig):
        if field.name in _OF_EVERY_COMMAND:
            continue
        kind = type(field.default)
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            dest=field.name,
            type=_boolean if kind is bool else kind,
            metavar={str: "TEXT", bool: "true|false"}.get(kind, "N"),
            help=setting_help(BookieConfig, field.name, _shown(field.default)),
        )


def bookie_config(args: argparse.Namespace) -> BookieConfig:
    """Raises ConfigError, with the name of what is wrong."""
    given = _read(Path(args.config)) if args.config else {}
    names = BookieConfig.__dataclass_fields__.keys() - {"zookeeper_auth"}
    named = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    auth = zookeeper_auth(args)
    return BookieConfig(**{**given, **named, **({"zookeeper_auth": auth} if auth else {})})


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
    return found


def _boolean(text: str) -> bool:
    if text not in _WORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _WORDS[text]


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default).replace("%", "%%") or "empty"
