-- fragment: dumped_job
CAST(j.id AS text), j.state, j.attempt, j.failures, j.crashes, j.fence, j.worker,
    ol.epoch(j.lease_until) - ol.epoch(ol.now()), ol.epoch(j.run_at) - ol.epoch(ol.now()),
    CAST(j.result AS text), j.max_attempts, j.max_crashes, j.queue, CAST(j.args AS text),
    j.cancelling, CAST(j.error AS text), CAST(j.flow AS text), CAST(j.team AS text), j.needs,
    j.waits_for, j.quorum, j.unlinked

-- name: dump_jobs
-- Every job, as the checker wants it.
-- postgres: with those of the archive
SELECT ol.dumped_job FROM ol.job AS j UNION ALL SELECT ol.dumped_job FROM ol.past AS j
-- sqlite: which it does not have
SELECT ol.dumped_job FROM ol.job AS j

-- name: in_both_tables
-- Jobs that are archived and not archived; and days whose jobs are not as many as their counts say.
-- postgres only: SQLite has no archive
SELECT CAST(j.id AS text) FROM ol.job AS j JOIN ol.past AS p ON p.id = j.id
UNION ALL
SELECT 'the counts of the archive' WHERE (SELECT count(*) FROM ol.past)
    <> (SELECT COALESCE(sum(number), 0) FROM ol.past_count)

-- name: dump_attempts
-- Every record of an attempt.
SELECT CAST(a.job AS text), a.fence, a.attempt, a.outcome
FROM ol.attempt AS a ORDER BY a.job, a.fence

-- name: dump_events
-- Every event, in the order in which they were accepted.
SELECT CAST(e.job AS text), e.attempt, e.kind, CAST(e.data AS text)
FROM ol.event AS e ORDER BY e.seq

-- name: dump_steps
-- Every step that was kept.
SELECT CAST(s.job AS text), s.name, s.fence, CAST(s.result AS text) FROM ol.step AS s

-- name: dump_edges
-- Who came after whom, in the order given.
SELECT CAST(e.job AS text), CAST(e.follower AS text) FROM ol.edge AS e ORDER BY e.follower, e.place

-- name: dump_flows
-- Every flow, and every part of one that fails together.
SELECT CAST(w.id AS text), CAST(w.part_of AS text), w.fail_after, w.failed, w.reason,
    w.cancelled_at IS NOT NULL, w.settled_at IS NOT NULL
FROM ol.flow AS w

-- name: dump_audited
-- What duties and the classes of the audit have found.
SELECT d.name, d.found FROM ol.duty AS d WHERE d.found > 0

-- name: dump_orphans
-- What is left of jobs that are gone: attempts, events, steps, edges, unique keys, and flows without a
-- job.
SELECT 'attempt', CAST(a.job AS text) FROM ol.attempt AS a
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = a.job)
UNION ALL
SELECT 'event', CAST(e.job AS text) FROM ol.event AS e
WHERE e.job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.job)
UNION ALL
SELECT 'step', CAST(s.job AS text) FROM ol.step AS s
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
UNION ALL
SELECT 'stream', CAST(s.job AS text) FROM ol.stream AS s
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
UNION ALL
SELECT 'edge', CAST(e.follower AS text) FROM ol.edge AS e
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.job)
    OR NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.follower)
UNION ALL
SELECT 'unique key', CAST(u.job AS text) FROM ol.unique_key AS u
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = u.job)
UNION ALL
SELECT 'flow', CAST(w.id AS text) FROM ol.flow AS w
WHERE NOT EXISTS (SELECT 1 FROM ol.job AS j
    WHERE j.flow = COALESCE(w.part_of, w.id) AND j.flow IS NOT NULL)

-- name: all_signals
-- Every signal, in the order of arrival, and the wait that took it.
SELECT CAST(s.job AS text), s.name, CAST(s.value AS text), s.taken_by FROM ol.signal AS s
ORDER BY s.seq
