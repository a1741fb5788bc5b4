"""What a file seems to be by its first bytes, where it is not what its name says."""

from __future__ import annotations

import re

START_BYTES = 16

_KINDS: tuple[tuple[bytes, str], ...] = (
    (rb"\x1f\x8b", "it is compressed by gzip: add .gz to the name of a text, or decompress it"),
    (rb"BZh[1-9]1AY", "it is compressed by bzip2: add .bz2 to the name of a text, or decompress it"),
    (rb"\x28\xb5\x2f\xfd", "it is compressed by zstd: add .zst to the name of a text, or decompress it"),
    (rb"\xfd7zXZ\0", "it is compressed by xz: decompress it"),
    (rb"PK\x03\x04", "it is a zip archive, as workbooks of Excel are: unpack it, or save it as CSV"),
    (rb"PAR[1E]", "it seems to be Parquet: name it .parquet, or give --format parquet"),
    (rb"ARROW1\0|\xff{4}[^\0\xff]", "it seems to be Arrow: name it .arrow, or give --format arrow"),
    (rb"FEA1", "it is a Feather file of version 1: write it as version 2"),
    (rb"Obj\x01|ORC", "it seems to be Avro or ORC: write it as Parquet"),
    (rb"\xff\xfe|\xfe\xff|[^\0]\0[^\0]\0|\0[^\0]\0[^\0]", "it seems to be UTF-16"),
)


def seems(start: bytes) -> str | None:
    """A sentence with the way out, or None."""
    return next((text for pattern, text in _KINDS if re.match(pattern, start, re.DOTALL)), None)
