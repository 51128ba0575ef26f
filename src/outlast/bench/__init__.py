"""The bench: Outlast beside the bare database, and beside others, in one run.

contender  who is measured: one file each, run as processes of its own (serve.py is their inside)
cells/     what is measured: one file for each kind
ground     where: a database, schema, file or server of its own for every single measurement
stage      one measurement: the processes of one contender on one place
rounds     who follows whom: A B C, A B C, …
figures    medians, spread, ratios
conditions under which it was: versions, settings, machine
"""
