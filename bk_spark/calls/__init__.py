"""How an application's thread waits for other threads of the client, so that nothing it may meet meanwhile leaves a trace.

An interrupt (Ctrl-C) is raised in the main thread, between any two steps of it. Python's own conditions, events and futures
take their locks in Python code: an interrupt that comes there leaves the lock held, and the thread that answers stands still
for ever. So nobody who waits here holds a lock (``gate.py``, ``call_future.py``), and what takes locks of others is not done
in the main thread (``off_main_thread.py``). A forked process has none of these threads, and is told so (``forks.py``).
A program that ends is told what it did not wait for (``exit_notice.py``).

Imports ``errors`` alone. Begin with ``gate.py``.
"""
