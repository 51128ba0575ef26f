-- name: table_metrics
-- Everything that is measured in the tables, as of one moment: a kind, a name, a state and numbers.
-- Each live state is asked for by a literal, so that its own partial index answers, and finished
-- jobs, of which there may be millions, are not looked at. Servers that merely offer jobs have a card
-- too; they are no workers.
SELECT 'jobs' AS kind, queue AS name, 'waiting' AS state, CAST(count(*) AS float8) AS number,
    ol.epoch(ol.now()) - min(ol.epoch(created_at)) AS oldest, 0.0 AS dwell
FROM ol.job WHERE state = 'waiting' GROUP BY queue
UNION ALL
SELECT 'jobs', queue, 'scheduled', count(*), ol.epoch(ol.now()) - min(ol.epoch(created_at)),
    ol.epoch(ol.now()) - min(ol.epoch(run_at))
FROM ol.job WHERE state = 'scheduled' GROUP BY queue
UNION ALL
SELECT 'jobs', queue, 'ready', count(*), ol.epoch(ol.now()) - min(ol.epoch(created_at)),
    ol.epoch(ol.now()) - min(ol.epoch(run_at))
FROM ol.job WHERE state = 'ready' GROUP BY queue
UNION ALL
SELECT 'jobs', queue, 'running', count(*), ol.epoch(ol.now()) - min(ol.epoch(created_at)), 0.0
FROM ol.job WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT 'jobs', queue, 'dead', count(*), 0.0, 0.0
FROM ol.job WHERE state = 'dead' GROUP BY queue
UNION ALL
SELECT 'expired', '', '', count(*), COALESCE(ol.epoch(ol.now()) - min(ol.epoch(lease_until)), 0.0),
    0.0
FROM ol.job WHERE state = 'running' AND lease_until < ol.now()
UNION ALL
SELECT 'paused', name, '', 1, 0.0, 0.0 FROM ol.queue WHERE paused
UNION ALL
SELECT 'most_waiting', name, '', most_waiting, 0.0, 0.0 FROM ol.queue WHERE most_waiting IS NOT NULL
UNION ALL
SELECT 'breaker', queue, task, 1, ol.epoch(ol.now()) - ol.epoch(opened_at), 0.0 FROM ol.breaker
UNION ALL
SELECT 'workers', '', CASE WHEN seen_at > ol.ago(lease) THEN state ELSE 'silent' END, count(*), 0.0,
    0.0
FROM ol.worker WHERE concurrency > 0 GROUP BY 3
UNION ALL
SELECT 'schedules', '', CASE WHEN error IS NOT NULL THEN 'error' WHEN paused_at IS NOT NULL
    THEN 'paused' ELSE 'active' END, count(*), COALESCE(max(CASE WHEN error IS NULL
    AND paused_at IS NULL THEN ol.epoch(ol.now()) - ol.epoch(next_at) END), 0.0), 0.0
FROM ol.schedule GROUP BY 3
UNION ALL
SELECT 'duty', name, 'found', found, every,
    COALESCE(ol.epoch(ol.now()) - ol.epoch(succeeded_at), -1.0)
FROM ol.duty
UNION ALL
SELECT 'duty', name, 'healed', healed, 0.0, 0.0 FROM ol.duty
UNION ALL
SELECT 'duty', name, 'skipped', skipped, 0.0, 0.0 FROM ol.duty
UNION ALL
SELECT 'duty', name, 'failed', failed, 0.0, 0.0 FROM ol.duty
