"""`outlast demo`: a few thousand jobs, worker processes that are killed, and the count at the end.

tasks (the handlers, which write a ledger) → fleet (worker processes, killed and replaced) → check
(ledger against database) → output. Ledger and workspace are those of `outlast.verify`.
"""
