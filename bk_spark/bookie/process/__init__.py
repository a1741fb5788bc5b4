"""The life of a bookie process: open, serve, register, work in the background, stop.

Imports every other folder of the bookie but ``inspection``; only the commands import it. Begin with ``run_bookie.py``.
"""
