-- name: insert_jobs
-- Insert new jobs; a job whose id or key exists is left alone and not returned. In a limited queue every
-- job has a lane: its own, its tenant's or the default one.
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

-- fragment: one_ready_job
INSERT INTO ol.job ol.values(
    id = ol.id(:id),
    tenant = :tenant,
    queue = :queue,
    lane = COALESCE(CAST(:lane AS text), (SELECT CASE q.lane_by WHEN 'tenant' THEN :tenant
        ELSE 'default' END FROM ol.queue AS q WHERE q.name = :queue AND q.limited)),
    task = :task,
    args = ol.json(:args),
    state = 'ready',
    priority = CAST(:priority AS integer),
    run_at = ol.now(),
    max_attempts = CAST(:max_attempts AS integer),
    max_crashes = CAST(:max_crashes AS integer),
    timeout = CAST(:timeout AS double precision),
    retry = ol.json(:retry),
    key = :key,
    trace = :trace,
    created_at = ol.now(),
    tied = ol.boolean(:tied),
    hooks = ol.json(:hooks))
ON CONFLICT DO NOTHING
RETURNING ol.epoch(created_at), lane

-- name: insert_job
-- As insert_jobs, for one job that is ready now and in no flow: with parameters instead of JSON.
ol.one_ready_job

-- name: insert_job_and_notify
-- The same, and notify idle workers, in the same round trip.
-- postgres only: see notify_workers
ol.one_ready_job, pg_notify(:channel, queue) IS NULL

-- name: copy_jobs
-- Insert many jobs that are ready now, in no flow, and without keys.
-- postgres: COPY is the fastest way in, and writes the least to the log
COPY ol.job (id, args, ol.copied_columns) FROM STDIN
-- sqlite: has no COPY; prepared once, and run for each row
INSERT INTO ol.job (id, args, ol.copied_columns)
VALUES (:id, :args, :tenant, :queue, :lane, :task, :priority, :run_at, :max_attempts, :max_crashes,
    :timeout, :retry, :trace, :created_at, :tied, :hooks, :state)

-- fragment: copied_columns
tenant, queue, lane, task, priority, run_at, max_attempts, max_crashes, timeout, retry, trace,
    created_at, tied, hooks, state

-- name: clock_of_copy
-- The time of copied jobs: as a column stores it, and as seconds since 1970.
-- postgres: as text, which COPY reads, whatever the session's date style
SELECT to_char(ol.now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), ol.epoch(ol.now())
-- sqlite: a time is a number of seconds
SELECT n.moment, n.moment FROM (SELECT ol.now() AS moment) AS n

-- name: lane_rules
-- The lane rules of limited queues, for jobs that name no lane.
SELECT q.name, q.lane_by FROM ol.queue AS q
WHERE q.limited AND q.name IN (SELECT ol.each(:queues))

-- name: existing_jobs
-- The existing jobs because of which new ones were refused: by id, or by key.
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid)
JOIN ol.job AS j ON j.id = t.id
UNION ALL
SELECT CAST(t.id AS text), ol.job_columns
FROM ol.rows(id uuid, tenant text, queue text, key text)
JOIN ol.job AS j ON j.tenant = t.tenant AND j.queue = t.queue AND j.key = t.key
WHERE j.key IS NOT NULL AND j.unique_mode IS NULL AND j.id <> t.id

-- name: notify_workers
-- Notify idle workers of queues with new jobs; polling finds these anyway.
-- postgres only: NOTIFY, delivered when the transaction commits; on SQLite workers watch
-- data_version, which every commit changes
SELECT count(pg_notify(:channel, queue))
FROM json_array_elements_text(CAST(:queues AS json)) AS q (queue)
