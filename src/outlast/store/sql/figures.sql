-- Lanes with ready jobs of each limited queue, found by hopping; at most a thousand.
-- fragment: waiting_lanes
waiting_lane (queue, lane, n) AS (
    SELECT q.name, (SELECT j.lane FROM ol.job AS j WHERE j.state = 'ready' AND j.lane IS NOT NULL
        AND j.queue = q.name ORDER BY j.lane LIMIT 1), 1
    FROM ol.queue AS q WHERE q.limited
    UNION ALL
    SELECT w.queue, (SELECT j.lane FROM ol.job AS j WHERE j.state = 'ready' AND j.lane IS NOT NULL
        AND j.queue = w.queue AND j.lane > w.lane ORDER BY j.lane LIMIT 1), w.n + 1
    FROM waiting_lane AS w WHERE w.lane IS NOT NULL AND w.n < 1000)

-- name: table_metrics
-- All metrics of the tables, as of one moment: a kind, a name, a state and numbers. Each live state is a
-- literal, so that its own partial index is used, and finished jobs, perhaps millions, are not read. Servers
-- that only offer jobs are registered, too, and are not workers.
WITH RECURSIVE ol.waiting_lanes
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
SELECT 'wait', b.name, '', b.number, b.oldest, 0.0 FROM (
    SELECT wait_name AS name, count(*) AS number,
        COALESCE(ol.epoch(ol.now()) - min(ol.epoch(started_at)), 0.0) AS oldest
    FROM ol.job WHERE state = 'waiting' AND wait_name IS NOT NULL
    GROUP BY wait_name ORDER BY count(*) DESC, wait_name LIMIT 20) AS b
UNION ALL
SELECT 'expired', '', '', count(*), COALESCE(ol.epoch(ol.now()) - min(ol.epoch(lease_until)), 0.0),
    0.0
FROM ol.job WHERE state = 'running' AND lease_until < ol.now()
UNION ALL
SELECT 'paused', name, '', 1, 0.0, 0.0 FROM ol.queue WHERE paused
UNION ALL
SELECT 'most_waiting', name, '', most_waiting, 0.0, 0.0 FROM ol.queue WHERE most_waiting IS NOT NULL
UNION ALL
SELECT 'running_limit', name, '', running, 0.0, 0.0 FROM ol.queue WHERE running IS NOT NULL
UNION ALL
SELECT 'lanes', queue, 'waiting', count(lane), 0.0, 0.0 FROM waiting_lane GROUP BY queue
UNION ALL
SELECT 'lanes', q.name, 'throttled', count(*), 0.0, 0.0
FROM ol.queue AS q JOIN ol.lane AS s ON s.queue = q.name AND s.lane <> ''
WHERE q.limited AND (ol.lane_closed OR (q.lane_rate IS NOT NULL AND ol.lane_tokens < 1))
GROUP BY q.name
UNION ALL
SELECT 'lanes', q.name, 'paused', count(*), 0.0, 0.0
FROM ol.queue AS q JOIN ol.lane AS s ON s.queue = q.name AND s.paused WHERE q.limited GROUP BY q.name
UNION ALL
SELECT 'throttled', q.name, '', CASE WHEN ol.queue_tokens < 1 THEN 1 ELSE 0 END, 0.0, 0.0
FROM ol.queue AS q LEFT JOIN ol.lane AS s ON s.queue = q.name AND s.lane = ''
WHERE q.rate IS NOT NULL
UNION ALL
SELECT 'quota', a.name, '', a.quota, COALESCE(CAST(u.used AS float8), 0.0), 0.0
FROM ol.queue AS a LEFT JOIN ol.quota AS u ON u.queue = a.name AND u.lane = ''
    AND u.starts_at = ol.whole(ol.epoch(ol.now()) / a.quota_period - 0.000001) * a.quota_period
WHERE a.quota IS NOT NULL
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
SELECT 'source', name, 'new', stored - undecodable, COALESCE(lag, -1.0),
    CASE WHEN error IS NULL THEN 0.0 ELSE 1.0 END
FROM ol.bridge WHERE kind = 'source'
UNION ALL
SELECT 'source', name, 'known', received - stored, 0.0, 0.0 FROM ol.bridge WHERE kind = 'source'
UNION ALL
SELECT 'source', name, 'undecodable', undecodable, 0.0, 0.0 FROM ol.bridge WHERE kind = 'source'
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
