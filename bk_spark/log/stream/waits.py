"""How long those who follow a log wait."""

HEARTBEAT_S = 5.0
"""Time between two reads of the log's head while nothing happens, in case a watch was lost."""

RETRY_S = 0.5
"""Between tries while bookies or the metadata store do not answer."""

PATIENCE_S = 60.0
"""For how long they may not answer before the error is raised. Longer than a session with the metadata store takes to come
back, and longer than the replacement of a bookie."""
