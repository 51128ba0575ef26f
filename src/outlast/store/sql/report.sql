-- fragment: in_reach
(CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
    AND (CAST(:queues AS text) IS NULL OR j.queue IN (SELECT ol.each(:queues)))

-- name: job
-- One job within the caller's access.
SELECT ol.job_columns FROM ol.job AS j WHERE j.id = ol.id(:id) AND ol.in_reach

-- name: jobs
-- A page of jobs, newest first, after a cursor.
SELECT ol.job_columns FROM ol.job AS j
WHERE j.id < ol.id(:before)
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY j.id DESC LIMIT :limit

-- name: jobs_in_state
-- A page of jobs in one state. A plain comparison, so that a partial index can be used.
SELECT ol.job_columns FROM ol.job AS j
WHERE j.id < ol.id(:before) AND j.state = :state
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY j.id DESC LIMIT :limit

-- name: ids_in_state
-- A page of the ids of jobs in one state, newest first, after a cursor.
SELECT CAST(j.id AS text) FROM ol.job AS j
WHERE j.id < ol.id(:before) AND j.state = :state
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY j.id DESC LIMIT :limit

-- name: count_jobs
-- The number of matching jobs.
SELECT count(*) FROM ol.job AS j
WHERE (CAST(:state AS text) IS NULL OR j.state = :state)
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)

-- name: ended
-- The ends of awaited jobs; and whether a job without a result was erased: it then has no arguments.
SELECT CAST(j.id AS text), j.state, CAST(j.result AS text), CAST(j.error AS text),
    CASE WHEN j.state = 'succeeded' AND j.result IS NULL THEN CAST(j.args AS text) = 'null'
        ELSE false END
FROM ol.job AS j WHERE ol.in_ids(j.id, :ids)

-- name: counts
-- The number of jobs in each state.
SELECT state, count(*) FROM ol.job GROUP BY state

-- name: queue_counts
-- The jobs of each queue that have not succeeded, by state, and the age of the oldest.
SELECT queue, state, count(*), ol.epoch(ol.now()) - min(ol.epoch(created_at))
FROM ol.job WHERE state IN ('waiting', 'scheduled', 'ready', 'running', 'dead')
GROUP BY queue, state ORDER BY queue, state

-- name: queue_settings
-- Queues that have a setting: whether they are paused, their retention, and their limits.
SELECT name, paused, keep, CAST(declared AS text), CAST(overrides AS text) FROM ol.queue ORDER BY name

-- name: attempts
-- The outcomes of a job's latest attempts, the newest first: a job that polls has many.
SELECT fence, attempt, worker, outcome, CAST(error AS text), ol.epoch(started_at),
    ol.epoch(finished_at)
FROM ol.attempt WHERE job = ol.id(:id) ORDER BY fence DESC LIMIT :limit

-- name: events
-- The recorded events of a job, without the ends of its attempts, which have a table of their own.
SELECT seq, attempt, kind, CAST(data AS text), ol.epoch(at)
FROM ol.event WHERE job = ol.id(:id) AND seq > :after AND kind <> 'attempt' ORDER BY seq LIMIT :limit

-- name: latest_events
-- The same for the latest events, the newest first.
SELECT seq, attempt, kind, CAST(data AS text), ol.epoch(at)
FROM ol.event WHERE job = ol.id(:id) AND kind <> 'attempt' ORDER BY seq DESC LIMIT :limit

-- name: ahead
-- How many of the first ready jobs of its queue, in the order of the claim, come before a job, within the
-- caller's access.
SELECT count(*) FROM ol.job AS o, (
    SELECT f.priority, f.run_at, f.id, f.tenant, f.queue FROM ol.job AS f
    WHERE f.state = 'ready' AND f.queue = (SELECT q.queue FROM ol.job AS q WHERE q.id = ol.id(:id))
    ORDER BY f.priority DESC, f.run_at, f.id LIMIT :limit) AS j
WHERE o.id = ol.id(:id) AND ol.in_reach
    AND (j.priority > o.priority OR (j.priority = o.priority
        AND (j.run_at < o.run_at OR (j.run_at = o.run_at AND j.id < o.id))))

-- name: clock
-- The database's clock.
SELECT ol.epoch(ol.now())

-- name: unhandled
-- Ready jobs by task and queue, to be compared with what live workers know.
SELECT queue, task, count(*) FROM ol.job WHERE state = 'ready' GROUP BY queue, task
ORDER BY queue, task

-- name: throughput
-- The jobs that ended in the last minute, and how long they waited and ran.
SELECT state, count(*), avg(ol.epoch(started_at) - ol.epoch(created_at)),
    avg(ol.epoch(finished_at) - ol.epoch(started_at))
FROM ol.job WHERE state IN ('succeeded', 'cancelled') AND finished_at > ol.ago(60)
GROUP BY state

-- name: database_number
-- The oid of a connection's database, and whether the server's identifier may be read.
-- postgres only: every role may read these two; on SQLite a file is known by its path
SELECT CAST(oid AS bigint), has_function_privilege('pg_control_system()', 'execute')
FROM pg_database WHERE datname = current_database()

-- name: server_identifier
-- The identifier that a server shares with its standbys and copies, and with no other server.
-- postgres only: from its control file
SELECT CAST(system_identifier AS text) FROM pg_control_system()

-- name: database_files
-- The files that a connection has open, the main one first.
-- sqlite only: a server keeps its files to itself
SELECT name, file FROM pragma_database_list ORDER BY seq

-- name: main_tables
-- Whether the main file of a connection has tables of our names.
-- sqlite only: PostgreSQL has one set of tables for each schema
SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = ol.table_name(job)
