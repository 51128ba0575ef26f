-- name: insert_jobs
-- Insert new jobs; a job whose id or key already stands is left alone and not returned.
INSERT INTO ol.job (id, tenant, queue, task, args, state, priority, run_at, max_attempts,
    max_crashes, timeout, retry, key, expires_at, trace, created_at, flow, team, needs, waits_for,
    quorum, tied, hooks)
SELECT t.id, t.tenant, t.queue, t.task, ol.json(t.args),
    CASE WHEN t.waits_for > 0 THEN 'waiting'
        WHEN t.delay > 0 OR ol.moment(t.at) > ol.now() THEN 'scheduled' ELSE 'ready' END,
    t.priority, COALESCE(ol.moment(t.at), ol.later(COALESCE(t.delay, 0))), t.max_attempts,
    t.max_crashes, t.timeout, ol.json(t.retry), t.key,
    COALESCE(ol.moment(t.expires_at), ol.later(t.expires_in)), t.trace, ol.now(),
    t.flow, t.team, COALESCE(t.needs, 'succeeded'), COALESCE(t.waits_for, 0), t.quorum,
    COALESCE(t.tied, false), ol.json(t.hooks)
FROM ol.rows(id uuid, tenant text, queue text, task text, args text, priority smallint,
    max_attempts integer, max_crashes integer, key text, delay double precision,
    at double precision, expires_in double precision, expires_at double precision,
    timeout double precision, retry text, trace text, flow uuid, team uuid, needs text,
    waits_for integer, quorum integer, tied boolean, hooks text)
WHERE true
ON CONFLICT DO NOTHING
RETURNING CAST(id AS text), state, ol.epoch(run_at), ol.epoch(created_at), ol.epoch(expires_at)

-- name: standing_jobs
-- The jobs that already stand where new ones were refused: by id, or by key.
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid)
JOIN ol.job AS j ON j.id = t.id
UNION ALL
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid, tenant text, queue text, key text)
JOIN ol.job AS j ON j.tenant = t.tenant AND j.queue = t.queue AND j.key = t.key
WHERE j.key IS NOT NULL AND j.id <> t.id

-- name: wake_workers
-- Tell sleeping workers which queues have something new; polling finds it anyway.
-- postgres: NOTIFY, delivered when the transaction commits
SELECT count(pg_notify(:channel, queue))
FROM json_array_elements_text(CAST(:queues AS json)) AS q (queue)
-- sqlite: workers watch data_version, which every commit changes
SELECT 0 WHERE :channel IS NULL AND :queues IS NULL
