"""Conditions on rows (option ``where``): parsing them, skipping entries by statistics, filtering rows.

======================= ==========================================================================
tokens.py               the words, numbers and strings of the text
condition.py            the grammar: tokens → a tree of comparisons
tree.py                 that tree, and what NOT makes of it
filter.py               binds the tree to a log's columns; entries and rows that may match, or do
comparison.py, like.py  one comparison with a column's values and statistics
literals.py, numbers.py which value of the column's type Spark compares with
======================= ==========================================================================

Imports ``rows``. Begin with ``condition.py``.
"""
