"""What a gateway does for a call: reads, tails, appends, writers, look-ups, lists and actions; and the limits of calls.

Imports ``gateway/flight`` and the client. Begin with ``open_calls.py``, what every call is bound by, and ``appends.py``.
"""
