-- name: next_moments
-- The clock, and when the next scheduled job, job expiry, probe of an open breaker and time-out of a wait
-- are due.
SELECT ol.epoch(ol.now()),
    (SELECT ol.epoch(run_at) FROM ol.job WHERE state = 'scheduled' ORDER BY run_at LIMIT 1),
    (SELECT ol.epoch(expires_at) FROM ol.job
        WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready')
        ORDER BY expires_at LIMIT 1),
    (SELECT min(ol.epoch(probe_at)) FROM ol.breaker),
    (SELECT min(ol.epoch(wait_until)) FROM ol.job WHERE state = 'waiting' AND wait_until IS NOT NULL)

-- name: running_queues
-- Queues with running jobs, of any worker.
SELECT DISTINCT queue FROM ol.job WHERE state = 'running'
