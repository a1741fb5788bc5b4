"""The cluster as a web page: ``bk-spark dashboard``. It only looks; nothing on it changes anything.

::

    collector.py      what the page shows, collected in the background at a bounded rate
      cluster.py  one_bookie.py  ledgers.py  logs.py     one look at each of them
      snapshots.py    what was last read of something, how old it is, since when reading it fails
      scrape.py rates.py                                 bookies' metrics, and what they say of the last seconds
    server.py         the page and its JSON over HTTP
    page.html style.css *.js                             the page
"""
