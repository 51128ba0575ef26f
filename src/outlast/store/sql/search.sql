-- fragment: line_columns
CAST(j.id AS text), j.task, j.queue, j.state, j.attempt, CAST(NULL AS text), CAST(NULL AS text),
    CAST(j.error AS text), ol.epoch(j.run_at), ol.epoch(j.created_at), ol.epoch(j.started_at),
    ol.epoch(j.finished_at), j.worker, j.tenant, j.priority, j.key, j.failures, j.crashes,
    j.max_attempts, j.max_crashes, j.fence, ol.epoch(j.lease_until), ol.epoch(j.expires_at),
    j.timeout, j.cancelling, j.trace, CAST(j.flow AS text), j.waits_for, j.lane

-- fragment: job_fits
j.id < ol.id(:before) AND j.id > ol.id(:floor)
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND ol.search_fits

-- fragment: search_fits
-- Arguments with a secret are not searched: it could be guessed letter by letter.
(CAST(:text AS text) IS NULL OR lower(j.key) LIKE :text ESCAPE '!'
    OR CAST(j.id AS text) LIKE :text ESCAPE '!'
    OR (lower(CAST(j.args AS text)) LIKE :text ESCAPE '!'
        AND CAST(j.args AS text) NOT LIKE '%"secret:%'))
    AND (CAST(:error AS text) IS NULL OR ol.error_type = :error)

-- fragment: error_type
-- postgres: only an object has a type; stored escapes (of NUL, say) may be such that ->> refuses them
COALESCE(CASE WHEN strpos(CAST(j.error AS text), '\u') = 0 THEN j.error
    ELSE CAST(regexp_replace(CAST(j.error AS text), '\\u(0000|d[89a-f][0-9a-f]{2})', '?', 'gi') AS json)
    END ->> 'type', '')
-- sqlite: a column may hold any text, JSON or not
COALESCE(json_extract(CASE WHEN json_valid(j.error) THEN j.error END, '$.type'), '')

-- name: search_jobs
-- Matching jobs, newest first, from a cursor down to a floor.
SELECT ol.line_columns FROM ol.job AS j
WHERE ol.job_fits AND ol.in_reach
    AND (CAST(:state AS text) IS NULL OR j.state || '' = :state)
ORDER BY j.id DESC LIMIT :limit

-- name: search_dead
-- The same among the dead, which have an index of their own.
SELECT ol.line_columns FROM ol.job AS j
WHERE ol.job_fits AND ol.in_reach AND j.state = 'dead'
ORDER BY j.id DESC LIMIT :limit

-- name: search_waiting
-- The same among jobs that wait for others.
SELECT ol.line_columns FROM ol.job AS j
WHERE ol.job_fits AND ol.in_reach AND j.state = 'waiting'
ORDER BY j.id DESC LIMIT :limit

-- name: search_running
-- The same among running jobs: never more than all workers can hold.
-- postgres: a materialized set, or the newest jobs would be read for it
WITH held AS MATERIALIZED (SELECT * FROM ol.job WHERE state = 'running')
SELECT ol.line_columns FROM held AS j WHERE ol.job_fits AND ol.in_reach
ORDER BY j.id DESC LIMIT :limit
-- sqlite: an expression, or the newest jobs would be read for it
SELECT ol.line_columns FROM ol.job AS j
WHERE j.state = 'running' AND j.id || '' < :before AND j.id || '' > :floor
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND ol.search_fits AND ol.in_reach
ORDER BY j.id || '' DESC LIMIT :limit

-- name: count_fitting
-- The number of matching jobs, from a cursor down to a floor.
SELECT count(*) FROM ol.job AS j
WHERE ol.job_fits AND ol.in_reach
    AND (CAST(:state AS text) IS NULL OR j.state || '' = :state)

-- name: count_fitting_dead
-- The same among the dead.
SELECT count(*) FROM ol.job AS j WHERE ol.job_fits AND ol.in_reach AND j.state = 'dead'

-- name: dead_by_error
-- Dead jobs between a cursor and a floor, by task and type of error: their number, the first and the last
-- time, and the last of them.
SELECT j.task, ol.error_type, count(*), min(ol.epoch(j.finished_at)), max(ol.epoch(j.finished_at)),
    max(CAST(j.id AS text))
FROM ol.job AS j
WHERE j.id < ol.id(:before) AND j.id > ol.id(:floor) AND j.state = 'dead' AND ol.in_reach
GROUP BY j.task, ol.error_type

-- name: due_next
-- Scheduled jobs in the order of their due time, after a cursor, in a bounded window.
SELECT ol.line_columns
FROM (SELECT * FROM ol.job AS s WHERE s.state = 'scheduled'
        AND (s.run_at, s.id) > (ol.moment(:run_at), ol.id(:id))
    ORDER BY s.run_at, s.id LIMIT :window) AS j
WHERE (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND ol.in_reach
ORDER BY j.run_at, j.id LIMIT :limit

-- name: due_far
-- The last scheduled job of that window, if there are more.
SELECT ol.epoch(run_at), CAST(id AS text) FROM ol.job WHERE state = 'scheduled'
    AND (run_at, id) > (ol.moment(:run_at), ol.id(:id))
ORDER BY run_at, id LIMIT 1 OFFSET :window

-- name: flows_in_reach
-- Flows that are entirely within the caller's access, newest first, in a bounded window.
SELECT CAST(w.id AS text), w.name, w.reason, ol.epoch(w.created_at), ol.epoch(w.cancelled_at),
    w.key
FROM (SELECT * FROM ol.flow AS f WHERE f.part_of IS NULL AND f.id < ol.id(:before)
    ORDER BY f.id DESC LIMIT :window) AS w
WHERE (CAST(:tenant AS text) IS NULL AND CAST(:queues AS text) IS NULL)
    OR (EXISTS (SELECT 1 FROM ol.job AS j
            WHERE j.flow = w.id AND j.flow IS NOT NULL AND ol.in_reach)
        AND NOT EXISTS (SELECT 1 FROM ol.job AS j
            WHERE j.flow = w.id AND j.flow IS NOT NULL AND NOT (ol.in_reach)))
ORDER BY w.id DESC LIMIT :limit

-- name: floor_of_flows
-- The id that is a number of flows below a cursor.
SELECT CAST(f.id AS text) FROM ol.flow AS f WHERE f.part_of IS NULL AND f.id < ol.id(:before)
ORDER BY f.id DESC LIMIT 1 OFFSET :window

-- name: floor_of_jobs
-- The id that is a number of jobs below a cursor.
SELECT CAST(j.id AS text) FROM ol.job AS j WHERE j.id < ol.id(:before)
ORDER BY j.id DESC LIMIT 1 OFFSET :window

-- name: floor_of_dead
-- The same among the dead.
SELECT CAST(j.id AS text) FROM ol.job AS j WHERE j.id < ol.id(:before) AND j.state = 'dead'
ORDER BY j.id DESC LIMIT 1 OFFSET :window

-- name: floor_of_waiting
-- The same among jobs that wait for others.
SELECT CAST(j.id AS text) FROM ol.job AS j WHERE j.id < ol.id(:before) AND j.state = 'waiting'
ORDER BY j.id DESC LIMIT 1 OFFSET :window

-- name: count_by_kind
-- The number of jobs of each kind, and the age of the oldest.
SELECT tenant, queue, task, state, count(*), ol.epoch(ol.now()) - min(ol.epoch(created_at))
FROM ol.job GROUP BY tenant, queue, task, state ORDER BY count(*) DESC LIMIT :limit

-- name: jobs_in_reach
-- The jobs that are within the caller's access.
SELECT CAST(j.id AS text) FROM ol.job AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_reach

-- name: flow_reach
-- Whether a flow has jobs within the caller's access, and whether it has others.
SELECT EXISTS (SELECT 1 FROM ol.job AS j
        WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL AND ol.in_reach),
    EXISTS (SELECT 1 FROM ol.job AS j
        WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL AND NOT (ol.in_reach))
