"""What operators' tools read: metrics, the HTTP endpoint, log lines.

Imports ``errors`` alone. Begin with ``metrics.py``, which names every metric.
"""
