-- name: insert_jobs
-- Insert new jobs; a job whose id or key already stands is left alone and not returned. In a limited
-- queue every job has a lane: its own, its tenant's or the default one.
INSERT INTO ol.job ol.columns(
    id = t.id,
    tenant = t.tenant,
    queue = t.queue,
    lane = COALESCE(t.lane, (SELECT CASE q.lane_by WHEN 'tenant' THEN t.tenant ELSE 'default' END
        FROM ol.queue AS q WHERE q.name = t.queue AND q.limited)),
    task = t.task,
    args = ol.json(t.args),
    state = CASE WHEN t.waits_for > 0 THEN 'waiting'
        WHEN t.delay > 0 OR ol.moment(t.at) > ol.now() THEN 'scheduled' ELSE 'ready' END,
    priority = t.priority,
    run_at = COALESCE(ol.moment(t.at), ol.later(COALESCE(t.delay, 0))),
    max_attempts = t.max_attempts,
    max_crashes = t.max_crashes,
    timeout = t.timeout,
    retry = ol.json(t.retry),
    key = t.key,
    expires_at = COALESCE(ol.moment(t.expires_at), ol.later(t.expires_in)),
    trace = t.trace,
    created_at = ol.now(),
    flow = t.flow,
    team = t.team,
    needs = COALESCE(t.needs, 'succeeded'),
    waits_for = COALESCE(t.waits_for, 0),
    quorum = t.quorum,
    tied = COALESCE(t.tied, false),
    hooks = ol.json(t.hooks),
    unique_mode = t.unique_mode)
FROM ol.rows(ol.new_job_row)
WHERE true
ON CONFLICT DO NOTHING
RETURNING CAST(id AS text), state, ol.epoch(run_at), ol.epoch(created_at), ol.epoch(expires_at),
    lane

-- name: existing_jobs
-- The jobs that already stand where new ones were refused: by id, or by key.
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid)
JOIN ol.job AS j ON j.id = t.id
UNION ALL
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid, tenant text, queue text, key text)
JOIN ol.job AS j ON j.tenant = t.tenant AND j.queue = t.queue AND j.key = t.key
WHERE j.key IS NOT NULL AND j.unique_mode IS NULL AND j.id <> t.id

-- name: notify_workers
-- Tell sleeping workers which queues have something new; polling finds it anyway.
-- postgres only: NOTIFY, delivered when the transaction commits; on SQLite workers watch
-- data_version, which every commit changes
SELECT count(pg_notify(:channel, queue))
FROM json_array_elements_text(CAST(:queues AS json)) AS q (queue)
