"""TLS between clients and bookies: files that are read again when they change, and why a handshake was refused.

Imports ``config``. Begin with ``files.py``.
"""
