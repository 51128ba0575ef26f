"""The proof, as a command: `outlast verify` kills, freezes, cuts and restarts, and then looks.

ledger      what was really done, written by those who did it to a file, not through Outlast
evidence    everything that is known at the end: the ledger, and a dump of the tables
checker     decides the five invariants from the evidence, and nothing else
records     the fourth of them: each job's record, read as a history
ties        all of them for jobs that wait for each other: who ran after whom, and with what
trap        stops a process before or after its n-th word with the database
place       schemas or files of our own, and their removal
workload    the tasks that run here;  stage  what a path acts on
paths       everything that can happen to a job, each as a short piece of code to be killed in
points      every exchange of every path, before and after;  tracing  finds them
children    forked processes, and how they end
campaign    what all campaigns have;  figures, progress  what they have to show
strikes     what campaigns share that strike in the middle of a path and then see it recover
proxy, line, wire     a network that misbehaves;  network  what campaigns share that break it
crash, zombie, ackloss, netsplit     one file per campaign;  stopwatch  for the last of them
recovery, heir     what comes after the fault
mutation    the same campaigns on a copy that is broken on purpose;  mutants  in which ways;
hunting     all of them, one after the other: the tester is tested
lasting     campaigns in which everything goes on at once;  crew  processes that are hurt
restarts    the campaign `recovery`: how soon jobs run again;  distribution  shares and a picture
loaded, feeding   enqueuers and workers under load;  soak, faults, hired  struck at random
flows, graphs, asking, flow_tasks   random graphs of jobs, killed and cancelled on the way
dbcrash, server   a PostgreSQL of its own that crashes
"""
