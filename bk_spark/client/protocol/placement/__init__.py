"""Which bookies hold what: ensembles and replacements over racks, and bookies to do without for a while. Pure.

Imports bk_spark's settings, errors and quorums alone. Begin with ``choose_bookies.py``.
"""
