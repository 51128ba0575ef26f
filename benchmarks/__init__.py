"""Outlast side by side with its peers: `make bench`, or `python -m benchmarks run`.

`outlast bench` measures a user's own database with few figures; this compares.

    contender     who is measured: one file each, run as processes of its own (`serve.py` is inside)
    ours/         Outlast, and the bare database
    contenders/   one file for each peer
    cells/        what is measured: one file for each kind
    ground        a database, schema, file or server of its own for every measurement
    stage         one measurement: the processes of one contender
    rounds        interleaved: A B C, A B C, …
    figures       medians, spread, ratios;  show  how they are printed
    conditions    versions, settings, machine
    environments  a virtual environment for each, made from PyPI
    services      a PostgreSQL and a Redis of our own
    report, plot  the page and the pictures of the documentation
"""
