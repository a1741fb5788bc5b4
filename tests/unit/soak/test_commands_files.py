"""The files that the net of commands draws: each append of them comes to what the net expects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bk_spark.errors import BookKeeperError
from tests.soak.commands.rows_files import FLAWS, FORMS, draw_files, types_option, wanted_log
from tests.unit.commands.row_files.files import appended


@pytest.mark.parametrize("seed", range(120))
def test_a_drawn_file_is_taken_whole_or_refused_as_the_net_expects(seed: int, tmp_path: Path):
    chance = random.Random(seed)
    files = draw_files(chance, tmp_path, None)
    merge = chance.random() < 0.4
    wanted = wanted_log(None, files, merge=merge)
    if wanted is None:
        with pytest.raises(BookKeeperError):
            appended(*(file.path for file in files), types=types_option(files), merge=merge)
        return
    table = appended(*(file.path for file in files), types=types_option(files), merge=merge)
    assert [tuple(row.items()) for row in table.to_pylist()] == list(wanted[1])


def test_the_net_draws_every_flaw_in_every_format_that_it_names(tmp_path: Path):
    drawn = [file for seed in range(120) for file in draw_files(random.Random(seed), tmp_path, None)]
    assert {file.flaw for file in drawn} == {None, *FLAWS} - {"bad value", "stranger"}
    assert {file.form for file in drawn} == set(FORMS)
