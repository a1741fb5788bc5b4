"""What a process takes of its machine: memory that it keeps, and files that it may open.

Imports ``config``. Begin with ``memory.py``.
"""
