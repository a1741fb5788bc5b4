"""The types in which files of a tier are read, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa

from bk_spark.log.tier.file_rows import normal_type


def test_long_offsets_views_dictionaries_and_zones_become_the_form_that_our_files_have() -> None:
    kind = pa.struct(
        [
            ("a", pa.large_list(pa.large_string())),
            ("b", pa.map_(pa.string_view(), pa.dictionary(pa.int8(), pa.binary_view()))),
            ("c", pa.timestamp("ms", "+00:00")),
            ("d", pa.list_(pa.field("element", pa.int32()))),
        ]
    )
    expected = pa.struct(
        [
            ("a", pa.list_(pa.string())),
            ("b", pa.map_(pa.string(), pa.binary())),
            ("c", pa.timestamp("us", "UTC")),
            ("d", pa.list_(pa.field("element", pa.int32()))),
        ]
    )
    assert normal_type(kind) == expected
    assert normal_type(expected) == expected
