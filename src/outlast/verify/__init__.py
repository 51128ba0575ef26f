"""The proof, as a command: `outlast verify` kills, freezes, cuts and restarts, and then looks.

ledger      what handlers did, written by them to a file, not through Outlast
evidence    everything that is known at the end: the ledger, the calls, a dump of the tables
checker     decides the five invariants from the evidence, and nothing else
trap        ends a process before or after its n-th statement
paths       everything that can happen to a job, each as a short piece of code to be killed in
crash, zombie, recovery, ackloss, netsplit, dbcrash, soak, mutants     one file per campaign
"""
