"""A tier under fire: tierers that are killed at their calls, beside writers, readers, a tail, truncations, a vacuum, and Spark.

And a log that becomes larger than the disks of its bookies (``outgrown.py``).
"""
