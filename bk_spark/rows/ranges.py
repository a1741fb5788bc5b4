"""Types whose values do not use all that their bits could hold."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as of

BYTES: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
"""Types of text, which may be any bytes, and those of the same bytes."""


def has_range(kind: pa.DataType) -> bool:
    """Whether a type does not have all values that its bits could hold."""
    return bool(of.is_time(kind) or of.is_decimal(kind))
