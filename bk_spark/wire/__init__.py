"""The messages between clients and bookies, and how they are encoded.

Imports ``entries`` and the generated code in ``proto``. Begin with ``messages.py``.
"""
