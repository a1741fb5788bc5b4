"""Files with types of their own: Parquet and Arrow.

====================== =====================================================================
typed_source.py        reads either
arrow_streams.py       Arrow streams up to the last byte
whole_files.py         Parquet and Arrow files that are one file each
====================== =====================================================================

Imports the files beside this folder. Begin with ``typed_source.py``.
"""
