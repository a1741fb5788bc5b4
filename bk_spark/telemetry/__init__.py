"""Metrics, the HTTP endpoint that serves them, and the format of log lines.

Imports ``errors`` alone. Begin with ``metrics.py``, which names every metric.
"""
