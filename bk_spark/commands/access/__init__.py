"""``bk-spark token`` and ``bk-spark grant``: who may do what through a gateway.

Imports ``gateway`` and what all commands share. Begin with ``change.py``, how both change what is stored.
"""
