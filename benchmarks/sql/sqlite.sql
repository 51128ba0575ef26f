-- name: left
-- How many are not finished.
SELECT (SELECT count(*) FROM ol.job WHERE state = 'ready')
    + (SELECT count(*) FROM ol.job WHERE state = 'running')
    + (SELECT count(*) FROM ol.job WHERE state = 'scheduled')

-- name: fill
-- One finished job, kept, that ended so many seconds ago.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, attempt, fence,
    max_attempts, max_crashes, worker, result, created_at, started_at, finished_at)
VALUES (:id, 'default', 'default', 'noop', '{"payload": "x"}', 'succeeded', 0, ol.ago(:ago), 1, 1,
    5, 3, 'filled', 'null', ol.ago(:ago), ol.ago(:ago), ol.ago(:ago))

-- name: add_business
-- A table of the caller's own.
CREATE TABLE IF NOT EXISTS ol.business (name text NOT NULL)

-- name: do_business
-- What the caller's transaction does besides.
INSERT INTO ol.business VALUES ('sold')

-- name: insert
-- One job.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, max_attempts,
    max_crashes, created_at)
VALUES (:id, 'default', 'default', 'noop', :args, 'ready', 0, ol.now(), 5, 3, ol.now())

-- name: insert_later
-- One job that is due tomorrow, at a higher priority.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, max_attempts,
    max_crashes, created_at)
VALUES (:id, 'default', 'default', 'noop', :args, 'scheduled', 50, ol.later(86400), 5, 3, ol.now())

-- name: finish
-- One of the last batch, if its claim still holds.
UPDATE ol.job SET state = 'succeeded', result = NULL, lease_until = NULL, finished_at = ol.now()
WHERE id = ? AND fence = ? AND state = 'running'

-- name: claim
-- The next batch.
UPDATE ol.job SET state = 'running', attempt = attempt + 1, fence = fence + 1, worker = 'bare',
    lease_until = ol.later(15), started_at = ol.now()
WHERE id IN (
    SELECT id FROM ol.job WHERE state = 'ready' AND queue = 'default'
    ORDER BY priority DESC, run_at, id LIMIT :limit)
RETURNING id, fence, args
