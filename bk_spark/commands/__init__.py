"""The subcommands of ``bk-spark``.

May import everything, and the machine. Begin with ``../cli.py``, which puts them together.
"""
