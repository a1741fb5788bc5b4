"""What travels between callers and a gateway: Flight's messages, what is asked for in them, and record batches.

Imports no clock, thread or socket: values go in, values come out. Begin with ``requests.py``.
"""
