-- name: live_stats
-- The current state shown by the overview, in one statement for any number of viewers: a kind,
-- tenant, name, state, numbers and texts. Live states as literals, as in `live_depths`.
-- Servers that only offer jobs are registered, too, and are not workers.
SELECT 'jobs' AS kind, tenant, queue AS name, 'waiting' AS state, CAST(count(*) AS float8) AS number,
    ol.epoch(ol.now()) - min(ol.epoch(created_at)) AS first, CAST(0.0 AS float8) AS second,
    CAST(NULL AS text) AS detail
FROM ol.job WHERE state = 'waiting' GROUP BY tenant, queue
UNION ALL
SELECT 'jobs', tenant, queue, 'scheduled', count(*), ol.epoch(ol.now()) - min(ol.epoch(run_at)), 0.0,
    NULL
FROM ol.job WHERE state = 'scheduled' GROUP BY tenant, queue
UNION ALL
SELECT 'jobs', tenant, queue, 'ready', count(*), ol.epoch(ol.now()) - min(ol.epoch(run_at)), 0.0,
    NULL
FROM ol.job WHERE state = 'ready' GROUP BY tenant, queue
UNION ALL
SELECT 'jobs', tenant, queue, 'running', count(*),
    ol.epoch(ol.now()) - min(ol.epoch(started_at)), 0.0, NULL
FROM ol.job WHERE state = 'running' GROUP BY tenant, queue
UNION ALL
SELECT 'jobs', tenant, queue, 'dead', count(*), 0.0, 0.0, NULL
FROM ol.job WHERE state = 'dead' GROUP BY tenant, queue
UNION ALL
SELECT 'expired', tenant, queue, '', count(*), ol.epoch(ol.now()) - min(ol.epoch(lease_until)), 0.0,
    NULL
FROM ol.job WHERE state = 'running' AND lease_until < ol.now() GROUP BY tenant, queue
UNION ALL
SELECT 'paused', '', name, '', 1, 0.0, 0.0, NULL FROM ol.queue WHERE paused
UNION ALL
SELECT 'breaker', '', queue, task, probes, ol.epoch(ol.now()) - ol.epoch(opened_at), 0.0, kind
FROM ol.breaker
UNION ALL
SELECT 'worker', '', id, state, running, ol.epoch(ol.now()) - ol.epoch(seen_at), lease,
    CAST(queues AS text)
FROM ol.worker WHERE concurrency > 0
UNION ALL
SELECT 'duty', '', name, '', failed, every,
    COALESCE(ol.epoch(ol.now()) - ol.epoch(succeeded_at), -1.0), error
FROM ol.duty
UNION ALL
SELECT 'clock', '', '', '', ol.epoch(ol.now()), 0.0, 0.0, NULL

-- name: losses
-- Lost workers, or refused writes, newest first.
SELECT ol.epoch(at), CAST(data AS text)
FROM ol.event WHERE kind IN ('worker-lost', 'write-refused') AND kind = :kind
ORDER BY seq DESC LIMIT :limit

-- name: crashed_attempts
-- Jobs of lost workers, newest first, and when they started again.
SELECT CAST(a.job AS text), j.task, j.queue, j.tenant, j.state, a.attempt, a.worker,
    ol.epoch(a.started_at), ol.epoch(a.finished_at),
    COALESCE((SELECT min(ol.epoch(n.started_at)) FROM ol.attempt AS n
        WHERE n.job = a.job AND n.fence > a.fence),
        CASE WHEN j.fence > a.fence THEN ol.epoch(j.started_at) END)
FROM ol.attempt AS a JOIN ol.job AS j ON j.id = a.job
WHERE a.outcome = 'crashed' AND a.finished_at > ol.ago(:late) AND ol.in_reach
ORDER BY a.finished_at DESC LIMIT :limit

-- name: held_jobs
-- Running jobs with their workers: bounded by the capacity of all workers.
SELECT j.worker, CAST(j.id AS text), j.task, j.queue, j.tenant, j.attempt,
    ol.epoch(j.started_at), ol.epoch(j.lease_until)
FROM ol.job AS j WHERE j.state = 'running' AND ol.in_reach
ORDER BY j.worker, j.started_at LIMIT :limit
