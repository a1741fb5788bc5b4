"""Where the time of ``make test`` goes: a table of each run, in build/durations. See ``recorder.py`` and ``table.py``."""
