"""`outlast demo`: a few thousand jobs, worker processes that are killed, and the count at the end.

tasks (what is done) → fleet (who does it, and dies) → ledger (what was seen) → check (what it
proves) → show (what you see).
"""
