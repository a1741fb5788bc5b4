"""Settings that somebody else changed meanwhile are not written over. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark import MetadataConflictError
from bk_spark.lake.begin import set_settings
from tests.cluster.lake.conftest import TieredLog


def test_a_change_rests_on_the_settings_that_it_was_made_from(tiered: TieredLog) -> None:
    tiered.log.append_rows(pa.table({"id": [1]}))
    tiered.log.set_tier(tiered.tier)
    logs, name, uid = tiered.client.logs, tiered.log.name, tiered.log.uid
    other = replace(tiered.tier, tier_after_s=5)
    set_settings(logs, name, uid, other, tiered.tier)
    with pytest.raises(MetadataConflictError, match="somebody set it meanwhile"):
        set_settings(logs, name, uid, replace(tiered.tier, keep_on_bookies_s=7), tiered.tier)
    assert logs.reader.tier.settings(name, uid) == other
