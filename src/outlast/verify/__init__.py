"""Verification campaigns: `outlast verify` injects faults, then checks every job.

campaigns/    one file per command; `campaign.py` and the other bases hold what they share
scenarios/    everything that can happen to a job, each a short generator to be interrupted
faults/       fault points, the interceptor, proxies, clocks, PostgreSQL servers of our own
checks/       evidence (ledger and a dump of the tables) and the checker of the five invariants

workspace     schemas or files of a campaign, and their removal
ledger        what handlers and callers did, written to a file and not through Outlast
children      forked processes and how they ended; process_group, supervised: many of a kind
workload      the tasks of the campaigns; flow_tasks, graphs, graph_load: those of flows
load          enqueuers at a steady rate
successor     the worker that gets the jobs of a frozen owner
results       figures of a campaign; progress, distribution: how they are shown

`make mutants`, in a checkout, tests the campaigns: it breaks a copy of the package on purpose.
"""
