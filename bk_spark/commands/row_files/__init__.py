"""Rows in files, for ``bk-spark log read`` and ``log append``: Parquet, Arrow, CSV and JSON lines.

====================== =====================================================================
append_files.py        many files as one stream of rows
named_file.py          one file, or standard input: its format, its compression, and that it did not change
first_bytes.py         what a file seems to be that cannot be read
typed/                 reads Parquet and Arrow; csv_source.py and json_source.py read texts
csv_quotes.py          refuses quotes that readers of CSV take for different things
one_schema.py          the columns of all files of a call, each accounted for
guessed_types.py       the types of columns that only text files have
type_names.py          ``--types``: Spark SQL's names of types
text_values.py         values as texts of CSV and back; json_values.py as JSON; both use simple_values.py, numbers.py, times.py
written.py             writes each format, to output_file.py
====================== =====================================================================

Imports the client, ``rows`` and ``commands/output.py``. Begin with ``append_files.py``.
"""
