"""What a command is as a program: its command line, its standard streams, its signals and its exit code.

Imports commands/output. Begin with process.py.
"""
