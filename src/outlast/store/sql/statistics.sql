-- fragment: ended_columns
j.tenant AS tenant, j.queue AS queue, j.state AS state,
    ol.epoch(j.started_at) - ol.epoch(j.run_at) AS waited,
    ol.epoch(j.finished_at) - ol.epoch(j.started_at) AS ran

-- fragment: within
j.finished_at >= ol.moment(:low) AND j.finished_at < ol.moment(:high)

-- name: ended_between
-- Jobs that ended in a span, by kind, with histograms of wait and run times. The
-- succeeded and the dead each have an index by the time of their end.
SELECT tenant, queue, state, wait_class, run_class, count(*), sum(waited), sum(ran)
FROM (SELECT tenant, queue, state, waited, ran,
    CASE WHEN waited IS NULL THEN NULL WHEN waited < 0.001 THEN 0 WHEN waited < 0.002 THEN 1
        WHEN waited < 0.005 THEN 2 WHEN waited < 0.01 THEN 3 WHEN waited < 0.02 THEN 4
        WHEN waited < 0.05 THEN 5 WHEN waited < 0.1 THEN 6 WHEN waited < 0.2 THEN 7
        WHEN waited < 0.5 THEN 8 WHEN waited < 1.0 THEN 9 WHEN waited < 2.0 THEN 10
        WHEN waited < 5.0 THEN 11 WHEN waited < 10.0 THEN 12 WHEN waited < 20.0 THEN 13
        WHEN waited < 60.0 THEN 14 WHEN waited < 300.0 THEN 15 WHEN waited < 1800.0 THEN 16
        WHEN waited < 7200.0 THEN 17 ELSE 18 END AS wait_class,
    CASE WHEN ran IS NULL THEN NULL WHEN ran < 0.001 THEN 0 WHEN ran < 0.002 THEN 1
        WHEN ran < 0.005 THEN 2 WHEN ran < 0.01 THEN 3 WHEN ran < 0.02 THEN 4
        WHEN ran < 0.05 THEN 5 WHEN ran < 0.1 THEN 6 WHEN ran < 0.2 THEN 7 WHEN ran < 0.5 THEN 8
        WHEN ran < 1.0 THEN 9 WHEN ran < 2.0 THEN 10 WHEN ran < 5.0 THEN 11
        WHEN ran < 10.0 THEN 12 WHEN ran < 20.0 THEN 13 WHEN ran < 60.0 THEN 14
        WHEN ran < 300.0 THEN 15 WHEN ran < 1800.0 THEN 16 WHEN ran < 7200.0 THEN 17 ELSE 18 END AS run_class
    FROM (SELECT ol.ended_columns FROM ol.job AS j
        WHERE j.state IN ('succeeded', 'cancelled') AND ol.within
        UNION ALL
        SELECT ol.ended_columns FROM ol.job AS j WHERE j.state = 'dead' AND ol.within) AS ended
    ) AS classed
GROUP BY tenant, queue, state, wait_class, run_class

-- name: attempts_between
-- Attempts that did not succeed in a span, by outcome.
SELECT o.tenant, o.queue, j.outcome, count(*)
FROM ol.attempt AS j JOIN ol.job AS o ON o.id = j.job
WHERE ol.within GROUP BY o.tenant, o.queue, j.outcome

-- name: live_depths
-- Unfinished jobs by tenant and queue. Each state is a literal, so that its own
-- partial index is used, and finished jobs, perhaps millions, are not read.
SELECT tenant, queue, 'waiting' AS state, count(*) FROM ol.job WHERE state = 'waiting'
GROUP BY tenant, queue
UNION ALL
SELECT tenant, queue, 'scheduled', count(*) FROM ol.job WHERE state = 'scheduled'
GROUP BY tenant, queue
UNION ALL
SELECT tenant, queue, 'ready', count(*) FROM ol.job WHERE state = 'ready' GROUP BY tenant, queue
UNION ALL
SELECT tenant, queue, 'running', count(*) FROM ol.job WHERE state = 'running' GROUP BY tenant, queue

-- name: keep_statistics
-- Store the counts of a span. A repeated count replaces the one before, unless
-- some of its jobs have been pruned meanwhile.
INSERT INTO ol.statistic AS s ol.columns(span = t.span, at = t.at, tenant = t.tenant, queue = t.queue,
    succeeded = t.succeeded, dead = t.dead, cancelled = t.cancelled, failed = t.failed,
    crashed = t.crashed, waits = ol.json(t.waits), runs = ol.json(t.runs), depths = ol.json(t.depths))
FROM ol.rows(span integer, at bigint, tenant text, queue text, succeeded bigint, dead bigint,
    cancelled bigint, failed bigint, crashed bigint, waits text, runs text, depths text)
WHERE true
ON CONFLICT (span, at, tenant, queue) DO UPDATE
SET succeeded = excluded.succeeded, dead = excluded.dead, cancelled = excluded.cancelled,
    failed = excluded.failed, crashed = excluded.crashed, waits = excluded.waits,
    runs = excluded.runs, depths = COALESCE(excluded.depths, s.depths)
    WHERE excluded.succeeded + excluded.dead + excluded.cancelled + excluded.failed
        + excluded.crashed >= s.succeeded + s.dead + s.cancelled + s.failed + s.crashed

-- name: newest_statistic
-- The start of the last counted span, and the current time.
SELECT (SELECT max(at) FROM ol.statistic WHERE span = :span), ol.epoch(ol.now())

-- name: statistics
-- The counts since a time, within the caller's access.
SELECT j.at, j.tenant, j.queue, j.succeeded, j.dead, j.cancelled, j.failed, j.crashed,
    CAST(j.waits AS text), CAST(j.runs AS text), CAST(j.depths AS text)
FROM ol.statistic AS j WHERE j.span = :span AND j.at >= :low AND j.at < :high AND ol.in_reach
ORDER BY j.at, j.tenant, j.queue

-- name: prune_statistics
-- Delete the counts before a time.
DELETE FROM ol.statistic WHERE span = :span AND at < :low
