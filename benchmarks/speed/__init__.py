"""Speed, measured beside what bounds it: ``python -m benchmarks.speed --list``.

Workloads stand in the modules of this package, one subject each; ``measure`` says what one is, ``command`` runs them.
"""
