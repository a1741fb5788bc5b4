"""The gateway under fire: two of them are killed in turns beneath writers, a continuous writer and a tail; hostile callers.

The second is ``hostile.py``.
"""
