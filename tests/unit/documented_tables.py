"""The tables of the guide that are made from the code, and the programs that it shows whole: ``python -m
tests.unit.documented_tables`` writes them into their pages.

Each stands between two comments, ``<!-- NAME: … -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from bk_spark.commands.arguments import setting_texts
from bk_spark.config import KIB, MIB, BookieConfig, ClientConfig
from bk_spark.datasource.option_table import options_table
from bk_spark.gateway.settings import GatewayConfig
from tests.checkout import ROOT

GUIDE = ROOT / "docs" / "guide"
CLIENTS = ROOT / "examples" / "gateway"


def settings_table(config: type) -> str:
    """A row for each field of a class of settings, with the first sentence of its text."""
    texts = setting_texts(config)
    fields = [field for field in dataclasses.fields(config) if field.name in texts]
    rows = [f"| `{field.name}` | {_shown(field)} | {_cell(texts[field.name])} |" for field in fields]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def program(path: Path) -> str:
    return f"```{path.suffix[1:]}\n{path.read_text(encoding='utf-8')}```"


TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("spark.md", "options"): options_table,
    ("python.md", "settings"): lambda: settings_table(ClientConfig),
    ("operate.md", "settings"): lambda: settings_table(BookieConfig),
    ("gateway.md", "settings"): lambda: settings_table(GatewayConfig),
    ("gateway-clients.md", "java"): lambda: program(CLIENTS / "java" / "src" / "main" / "java" / "GatewayClient.java"),
    ("gateway-clients.md", "go"): lambda: program(CLIENTS / "go" / "main.go"),
}
"""Page and name of a table or program → its text."""


def written(page: str, name: str) -> str:
    """The table as it stands in its page."""
    return _place(name).search((GUIDE / page).read_text(encoding="utf-8"))["table"]  # type: ignore[index]


def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<begin><!-- {name}: [^\n]*-->\n)(?P<table>.*?)\n?(?P<end><!-- end of {name} -->)", re.DOTALL)


def _shown(field: dataclasses.Field[object]) -> str:
    default = field.default
    if default == "":
        return "(none)"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int) and "_bytes" in field.name:
        return f"{default // MIB} MiB" if default % MIB == 0 else f"{default // KIB} KiB"
    return f"{default:,g}" if isinstance(default, (int, float)) else str(default)


def _cell(text: str) -> str:
    """Percent signs are doubled for argparse."""
    return text.replace("%%", "%").replace("|", "\\|")


def main() -> None:
    for (page, name), made in TABLES.items():
        path, table = GUIDE / page, made()
        text = path.read_text(encoding="utf-8")
        path.write_text(_place(name).sub(lambda found, table=table: f"{found['begin']}{table}\n{found['end']}", text))


if __name__ == "__main__":
    main()
