"""`outlast demo`: a few thousand jobs, worker processes that are killed, and a check of all
jobs.

tasks (the handlers, which write a ledger) → fleet (worker processes, killed and replaced) → check
(ledger against database) → output. Ledger and workspace are those of `outlast.verify`.
"""
