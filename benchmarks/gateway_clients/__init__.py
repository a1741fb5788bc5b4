"""The clients that ``benchmarks/gateway.py`` compares: Python in ``in_python.py``, Java and Go in folders of their own.

All make the same rows, by the formula of ``rows.py``: so each can check what another one wrote.
"""
