"""The subcommands of ``bk-spark``: each group's module holds its parsers (``add``) and the code behind them.

May import everything, and the machine. Begin with ``../cli.py``, which puts them together; ``arguments.py``, ``settings.py``,
``connect.py`` and ``output.py`` are what the commands share.
"""
