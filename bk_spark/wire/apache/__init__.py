"""Apache BookKeeper's TCP protocol in its two forms, as bytes and as this package's messages.

Imports ``entries``, ``wire.messages`` and the generated code in ``proto``. Begin with ``version_2.py``.
"""
