"""The program ``bk-spark``.

It stands outside of the package, whose import takes a tenth of a second: an interrupt meanwhile ends the program without a
traceback.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from bk_spark.cli import main

__all__ = ["main"]
