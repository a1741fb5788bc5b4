"""Rows as Python has them, as columns. A value comes back equal, or it is refused.

Equal is the same number, text, instant, length of time, or list, map and struct of such. A number without a unit, in a column
of dates or times, counts in the column's unit. A float in a ``float`` column is rounded, as long as it stays a finite number
other than 0. Text and bytes go into each other's columns as UTF-8. NaT, NA and what a numpy mask hides are null.

It imports the times and ranges of ``bk_spark.rows``. Begin with columns.py.
"""
