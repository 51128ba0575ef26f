-- name: cancel
-- Cancel a queued job at once, or, with :asking, ask the owner of a running one to stop.
UPDATE ol.job AS j
SET state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END, ol.no_wait,
    cancelling = (state = 'running'),
    finished_at = CASE WHEN state = 'running' THEN NULL ELSE ol.now() END,
    error = CASE WHEN state = 'running' THEN error ELSE ol.json(:error) END
WHERE id = ol.id(:id) AND state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT cancelling
    AND (ol.boolean(:asking) OR state <> 'running') AND ol.in_reach
RETURNING state, tied

-- name: request_cancel
-- Ask for the cancel of a running job from within a caller's transaction, without a lock on its row.
INSERT INTO ol.cancel_request (job, data, at) VALUES (ol.id(:id), ol.json(:data), ol.now())

-- name: take_cancel_requests
-- Take requests to cancel that were committed since.
-- postgres: SKIP LOCKED, so that workers share the work. The request of a job whose row is locked is left
-- for the next pass: all others would wait for it, too.
WITH asked AS MATERIALIZED (
    SELECT seq, job FROM ol.cancel_request ORDER BY seq LIMIT :limit OFFSET :skip
    FOR UPDATE SKIP LOCKED),
held AS MATERIALIZED (
    SELECT id FROM ol.job WHERE id IN (SELECT asked.job FROM asked)
    ORDER BY id FOR UPDATE SKIP LOCKED)
DELETE FROM ol.cancel_request WHERE seq IN (
    SELECT asked.seq FROM asked WHERE asked.job IN (SELECT held.id FROM held)
        OR NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = asked.job))
RETURNING CAST(job AS text), seq, CAST(data AS text)
-- sqlite: one writer at a time
DELETE FROM ol.cancel_request WHERE seq IN (
    SELECT seq FROM ol.cancel_request ORDER BY seq LIMIT :limit OFFSET :skip)
RETURNING job, seq, data

-- name: redrive
-- Redrive ended jobs: with full budgets, due now. A job with prerequisites waits
-- until these are recounted.
UPDATE ol.job AS j
SET state = CASE WHEN EXISTS (SELECT 1 FROM ol.edge AS e WHERE e.follower = j.id)
        THEN 'waiting' ELSE 'ready' END,
    waits_for = CASE WHEN EXISTS (SELECT 1 FROM ol.edge AS e WHERE e.follower = j.id)
        THEN 1 ELSE 0 END,
    attempt = 0, failures = 0, crashes = 0, run_at = ol.now(), worker = NULL,
    finished_at = NULL, started_at = NULL, cancelling = false, expires_at = NULL
WHERE ol.in_ids(id, :ids) AND state IN ('dead', 'cancelled') AND ol.in_reach
RETURNING CAST(id AS text), state, tied

-- name: redriven
-- The jobs that were redriven by one action.
-- An action is a UUID: it is searched in the text, because data may be invalid JSON.
SELECT DISTINCT CAST(job AS text) FROM ol.event
WHERE ol.in_ids(job, :ids) AND kind = 'redrive'
    AND CAST(data AS text) LIKE '%' || CAST(:action AS text) || '%'

-- name: record_action
-- Record an action of an operator or a duty.
INSERT INTO ol.event (job, attempt, kind, data, at)
SELECT t.job, NULL, t.kind, ol.json(t.data), ol.now()
FROM ol.rows(job uuid, kind text, data text)

-- name: record_events
-- Store events of running attempts, if their claims still hold, in their order; repeated ones
-- once.
INSERT INTO ol.event (job, attempt, fence, n, kind, data, at)
SELECT t.job, j.attempt, t.fence, t.n, t.kind, ol.json(t.data), ol.now()
FROM ol.rows(n bigint, job uuid, fence bigint, worker text, offered_by text, kind text, data text)
JOIN ol.job AS j ON j.id = t.job
WHERE j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'
ORDER BY t.n
ON CONFLICT (job, fence, n) WHERE n IS NOT NULL DO NOTHING
RETURNING CAST(job AS text)

-- name: pause_queue
-- Stop the claiming of a queue; no row if it is paused.
INSERT INTO ol.queue AS q (name, paused, changed_at) VALUES (:queue, true, ol.now())
ON CONFLICT (name) DO UPDATE SET paused = true, changed_at = excluded.changed_at WHERE NOT q.paused
RETURNING name

-- name: resume_queue
-- Claim from a paused queue again; no row if it is not paused.
UPDATE ol.queue SET paused = false, changed_at = ol.now() WHERE name = :queue AND paused
RETURNING name

-- name: set_keep
-- Set the retention of a queue's ended jobs; no row if unchanged.
INSERT INTO ol.queue AS q (name, keep, changed_at) VALUES (:queue, :keep, ol.now())
ON CONFLICT (name) DO UPDATE SET keep = excluded.keep, changed_at = excluded.changed_at
    WHERE COALESCE(q.keep, -1) <> COALESCE(excluded.keep, -1)
RETURNING name

-- name: hold_running
-- Lock a running job; returns its claim, and whether its cancel was
-- requested.
-- postgres: a concurrent finish comes first, or is refused
SELECT ol.claim_columns, cancelling FROM ol.job AS j
WHERE j.id = ol.id(:id) AND j.state || '' = 'running' AND ol.in_reach FOR UPDATE
-- sqlite: one writer at a time
SELECT ol.claim_columns, cancelling FROM ol.job AS j
WHERE j.id = ol.id(:id) AND j.state || '' = 'running' AND ol.in_reach

-- name: purge_jobs
-- Remove those of the jobs that ended long enough ago; not those that a flow needs, as in prune,
-- except those removed together.
DELETE FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND j.state || '' IN ('succeeded', 'dead', 'cancelled')
    AND j.state || '' = COALESCE(CAST(:state AS text), j.state)
    AND j.finished_at <= ol.ago(:older) AND ol.in_reach
    AND (j.flow IS NULL OR NOT EXISTS (SELECT 1 FROM ol.job AS o WHERE o.flow = j.flow
        AND o.flow IS NOT NULL AND o.state IN ('waiting', 'scheduled', 'ready', 'running')
        LIMIT 1 OFFSET 0))
    AND (NOT j.tied OR NOT EXISTS (SELECT 1 FROM ol.edge AS e JOIN ol.job AS f ON f.id = e.follower
        WHERE e.job = j.id AND (f.state IN ('waiting', 'scheduled', 'ready', 'running')
            OR ((f.state = 'dead' OR (f.state = 'cancelled' AND j.state = 'succeeded'))
                AND ol.not_in_ids(f.id, :ids)))
        LIMIT 1 OFFSET 0))
RETURNING CAST(id AS text), CAST(flow AS text), unique_mode, ol.references

-- fragment: changeable
ol.in_ids(j.id, :ids) AND j.state || '' = :state AND ol.in_reach

-- name: reschedule_jobs
-- Change the due time of jobs that have not started.
UPDATE ol.job AS j
SET run_at = COALESCE(ol.moment(:at), ol.later(:delay)), ol.no_wait,
    state = CASE WHEN COALESCE(ol.moment(:at), ol.later(:delay)) > ol.now() THEN 'scheduled'
        ELSE 'ready' END
WHERE ol.changeable AND j.state IN ('scheduled', 'ready')
RETURNING CAST(id AS text)

-- name: prioritize_jobs
-- Change the priority of jobs that have not started.
UPDATE ol.job AS j SET priority = :priority
WHERE ol.changeable AND j.state IN ('waiting', 'scheduled', 'ready')
RETURNING CAST(id AS text)

-- name: move_jobs
-- Move jobs that have not started to another queue; not those whose keys exist there already, or are
-- unique within their own. Where lanes are tenants, a lane's name in the old queue does not count.
UPDATE ol.job AS j
SET queue = :queue,
    lane = (SELECT CASE WHEN q.lane_by = 'tenant' THEN j.tenant ELSE COALESCE(j.lane, 'default') END
        FROM ol.queue AS q WHERE q.name = :queue AND q.limited)
WHERE ol.changeable AND j.state IN ('waiting', 'scheduled', 'ready') AND j.unique_mode IS NULL
    AND (j.key IS NULL OR NOT EXISTS (SELECT 1 FROM ol.job AS o WHERE o.tenant = j.tenant
        AND o.queue = :queue AND o.key = j.key AND o.key IS NOT NULL AND o.unique_mode IS NULL))
RETURNING CAST(id AS text)

-- name: move_to_lane
-- Move jobs that have not started to another lane of their queue, if it has lanes.
UPDATE ol.job AS j SET lane = :lane
WHERE ol.changeable AND j.state IN ('waiting', 'scheduled', 'ready')
    AND EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = j.queue AND q.limited)
RETURNING CAST(id AS text)

-- name: unique_jobs
-- The jobs whose keys are unique for a time.
SELECT CAST(id AS text) FROM ol.job WHERE ol.in_ids(id, :ids) AND unique_mode IS NOT NULL

-- name: states_by_age
-- The states of jobs that an action left alone, and whether each ended long enough ago.
SELECT CAST(id AS text), state, COALESCE(finished_at <= ol.ago(:older), false)
FROM ol.job WHERE ol.in_ids(id, :ids)

-- name: erase_job
-- Erase arguments, result and error of an ended job; the row and its final state
-- stay.
UPDATE ol.job AS j
SET args = 'null', result = NULL, hooks = NULL, error = CASE WHEN error IS NULL THEN NULL
        ELSE ol.json('{"type": "Forgotten", "message": "forgotten", "traceback": ""}') END
WHERE id = ol.id(:id) AND state IN ('succeeded', 'dead', 'cancelled') AND ol.in_reach
RETURNING CAST(id AS text)

-- name: erase_flow_digest
-- Erase the digest of a flow's arguments when one of its jobs is erased.
UPDATE ol.flow AS w SET shape = ''
WHERE w.key IS NOT NULL AND (w.id = (SELECT j.flow FROM ol.job AS j WHERE j.id = ol.id(:id))
    OR w.part_of = (SELECT j.flow FROM ol.job AS j WHERE j.id = ol.id(:id)))

-- name: hold_result
-- Lock a succeeded job: whether it is erased, and whether a flow still needs it.
-- postgres: of two exclusive readers, the second waits for the first
SELECT CAST(j.args AS text) = 'null', NOT (ol.not_needed) FROM ol.job AS j
WHERE j.id = ol.id(:id) AND j.state || '' = 'succeeded' AND ol.in_reach FOR UPDATE
-- sqlite: one writer at a time
SELECT j.args = 'null', NOT (ol.not_needed) FROM ol.job AS j
WHERE j.id = :id AND j.state || '' = 'succeeded' AND ol.in_reach

-- name: erased_by
-- Who first erased a job, and when.
SELECT CAST(data AS text), ol.epoch(at) FROM ol.event
WHERE job = ol.id(:id) AND kind = 'forget' ORDER BY seq LIMIT 1

-- name: erase_attempts
-- Erase the errors of a job's attempts.
UPDATE ol.attempt SET error = NULL WHERE job = ol.id(:id)

-- name: erase_events
-- Erase events of a job's attempts, and their errors; outcomes and actions of operators
-- stay.
-- postgres: an operator removes a part of the JSON
UPDATE ol.event
SET data = CASE WHEN n IS NULL THEN CAST(CAST(data AS jsonb) - 'error' AS json) END
WHERE job = ol.id(:id) AND (n IS NOT NULL OR kind = 'attempt')
-- sqlite: a function
UPDATE ol.event SET data = CASE WHEN n IS NULL THEN json_remove(data, '$.error') END
WHERE job = ol.id(:id) AND (n IS NOT NULL OR kind = 'attempt')
