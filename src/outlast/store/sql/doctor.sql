-- name: schema_version
-- Which version the tables have, and the oldest one that a release must know to use them.
SELECT max(version), max(compatible_from) FROM ol.migration

-- name: unowned
-- Running jobs whose lease ran out, and how long ago at the longest.
SELECT count(*), max(ol.epoch(ol.now()) - ol.epoch(lease_until))
FROM ol.job WHERE state = 'running' AND lease_until < ol.now()

-- name: overdue
-- Scheduled jobs that are due, and for how long at the longest.
SELECT count(*), max(ol.epoch(ol.now()) - ol.epoch(run_at))
FROM ol.job WHERE state = 'scheduled' AND run_at < ol.now()

-- name: outlived
-- Queued jobs that are past their own expiry, and for how long at the longest.
SELECT count(*), max(ol.epoch(ol.now()) - ol.epoch(expires_at))
FROM ol.job
WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready')
    AND expires_at < ol.now()

-- name: owners
-- How many jobs each worker has in hand, by the rows.
SELECT worker, count(*) FROM ol.job WHERE state = 'running' GROUP BY worker
