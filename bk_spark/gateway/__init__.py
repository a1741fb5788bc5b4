"""The gateway: logs over Arrow Flight for programs that are no members of the cluster, and who may do what there.

Imports ``bookkeeper``, and ``grpc`` in the server. Begin with ``rights.py``, what may be granted, and ``access.py``, who asks
and may he; then ``service.py``, the calls of Flight.
"""
