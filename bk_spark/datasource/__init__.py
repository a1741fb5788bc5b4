"""The Spark data source: ``format("bookkeeper")`` for batches and streams.

The only package that imports pyspark. Imports the client and ``rows``, never ``bookie``. Begin with ``source.py``,
whose docstring is the manual; ``options.py`` holds every option.
"""
