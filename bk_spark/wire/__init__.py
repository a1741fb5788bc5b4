"""The messages between clients and bookies, and their form in protobuf and Arrow.

Imports ``entries`` and the generated code in ``proto``. Begin with ``messages.py``.
"""
