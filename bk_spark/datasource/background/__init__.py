"""The thread that looks and waits for a stream, and what it heard last.

Imports the errors, and ``log.stream`` for its times. Begin with ``stream_thread.py``.
"""
