-- name: left
-- How many are not finished. Each part has an index of its own, so that asking costs little.
SELECT (SELECT count(*) FROM ol.job WHERE state = 'ready')
    + (SELECT count(*) FROM ol.job WHERE state = 'running')
    + (SELECT count(*) FROM ol.job WHERE state = 'scheduled')

-- name: fill
-- So many finished jobs, kept, of the last twelve hours; their ids in order, as a client's are.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, attempt, fence,
    max_attempts, max_crashes, worker, result, created_at, started_at, finished_at)
SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid), 'default', 'default', 'noop', '{"payload": "x"}',
    'succeeded', 0, at, 1, 1, 5, 3, 'filled', 'null', at, at, at
FROM generate_series(1, %(n)s) AS n,
    LATERAL (SELECT now() - interval '12 hours' * (1.0 - n / CAST(%(n)s AS float)) AS at) AS ended

-- name: vacuum
-- As the table is once autovacuum has been there.
VACUUM ANALYZE ol.job

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
VALUES (%(id)s, 'default', 'default', 'noop', %(args)s, 'ready', 0, now(), 5, 3, now())

-- name: copy
-- Many jobs.
COPY ol.job (id, tenant, queue, task, args, state, priority, run_at, max_attempts, max_crashes,
    created_at) FROM STDIN

-- name: insert_later
-- Jobs that are due tomorrow, at a higher priority.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, max_attempts,
    max_crashes, created_at)
VALUES (%(id)s, 'default', 'default', 'noop', %(args)s, 'scheduled', 50, now() + interval '1 day',
    5, 3, now())

-- name: turn
-- Finish the last batch, if its claims still hold, and claim the next: one statement, one commit.
-- The scan begins at the smallest key of the last claim, so that what is dead since is not read
-- again; and the state is compared as an expression, so that rows are found by their ids.
WITH done AS (
    UPDATE ol.job AS j SET state = 'succeeded', result = NULL, lease_until = NULL,
        finished_at = statement_timestamp()
    FROM unnest(CAST(%(ids)s AS uuid[]), CAST(%(fences)s AS bigint[])) AS t (id, fence)
    WHERE j.id = t.id AND j.fence = t.fence AND j.state || '' = 'running'
    RETURNING 1),
picked AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE state = 'ready' AND queue = 'default' AND priority = 0
        AND (run_at, id) >= (CAST(%(run_at)s AS timestamptz), CAST(%(id)s AS uuid))
    ORDER BY priority DESC, run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
taken AS (
    UPDATE ol.job AS j SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,
        worker = 'bare', lease_until = statement_timestamp() + interval '15 s',
        started_at = statement_timestamp()
    FROM picked WHERE j.id = picked.chosen
    RETURNING j.id, j.fence, j.run_at, CAST(j.args AS text) AS args)
SELECT (SELECT count(*) FROM done), taken.id, taken.fence, taken.run_at, taken.args
FROM (SELECT 1) AS one LEFT JOIN taken ON true
