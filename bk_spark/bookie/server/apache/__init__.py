"""The second port of a bookie, for Apache BookKeeper's clients: its wire protocol, versions 2 and 3.

Imports the server's requests.py and the wire messages. Begin with ``listener.py``, then ``connection.py``.
"""
