"""How fast, how large, how long: the files here stand alone, ``speed`` and ``peers`` are commands with many workloads."""
