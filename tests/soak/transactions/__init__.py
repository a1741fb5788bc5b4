"""Transactions under fire: writers over three logs are killed at their calls, and the driver of a stream into 20 logs.

The second is ``stream.py``.
"""
