"""Outlast side by side with its peers: `make bench`, or `python -m benchmarks run`.

How it is measured is in `outlast.bench`, which everybody has; here are the others:

    contenders/   one file for each peer
    environments  a virtual environment for each, made from PyPI
    services      a PostgreSQL and a Redis of our own
    report, plot  the page and the pictures of the documentation
"""
