"""TLS between clients and bookies: files that are reloaded when they change, and the diagnosis of refused handshakes.

Imports ``config``. Begin with ``files.py``.
"""
