-- fragment: same_owner
COALESCE(j.worker, '') IN (COALESCE(t.worker, ''), t.offered_by)

-- name: finish
-- The only way out of running: apply transitions whose claims still hold, and return those. A claim
-- is its job, its fence and its owner: after a failover that lost commits, or from a restored backup,
-- two owners may have the same fence. An offer's owner is the server that made it until the
-- remote worker accepts it; that worker's reports are valid for both. (No owner: a damaged row,
-- which the audit ends.)
-- A requested cancel turns every return to a queue into cancelled. Columns without a value stay as
-- they are. The state is compared as an expression: a plain comparison lets the planner walk the partial
-- index of running rows, dead entries and all, instead of the primary key.
UPDATE ol.job AS j
SET state = CASE WHEN j.cancelling AND t.state IN ('ready', 'scheduled', 'waiting') THEN 'cancelled'
        ELSE t.state END,
    run_at = CASE WHEN t.due IS NOT NULL THEN ol.moment(t.due) WHEN t.delay IS NULL THEN j.run_at
        ELSE ol.later(t.delay) END,
    wait_name = CASE WHEN NOT j.cancelling THEN t.wait END,
    wait_until = CASE WHEN t.wait IS NOT NULL AND NOT j.cancelling
        THEN COALESCE(ol.moment(t.due), ol.later(t.delay)) END,
    attempt = j.attempt - COALESCE(t.refund, 0),
    failures = j.failures + CASE WHEN j.failures < 2147483647 THEN COALESCE(t.failures, 0) ELSE 0 END,
    crashes = j.crashes + CASE WHEN j.crashes < 2147483647 THEN COALESCE(t.crashes, 0) ELSE 0 END,
    result = ol.json(t.result),
    error = COALESCE(ol.json(t.error), j.error),
    worker = CASE WHEN t.state IN ('ready', 'scheduled', 'waiting') AND NOT j.cancelling THEN NULL
        ELSE t.worker END,
    lease_until = NULL,
    finished_at = CASE WHEN t.state IN ('ready', 'scheduled', 'waiting') AND NOT j.cancelling THEN NULL
        ELSE ol.now() END
FROM ol.rows(id uuid, fence bigint, worker text, offered_by text, state text,
    delay double precision, refund integer, failures integer, crashes integer, result text,
    error text, wait text, due double precision)
WHERE j.id = t.id AND j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'
RETURNING ol.finish_columns

-- fragment: finish_columns
CAST(ol.updated(id) AS text), ol.updated(fence), ol.updated(state), ol.updated(tied),
    ol.updated(awaited)

-- fragment: ending_well
UPDATE ol.job AS j
SET state = 'succeeded', result = ol.json(t.result), lease_until = NULL, finished_at = ol.now()
FROM ol.rows(id uuid, fence bigint, result text)
WHERE j.id = t.id AND j.fence = t.fence AND j.worker = :owner
    AND j.state || '' = 'running'

-- fragment: succeeding
ol.ending_well AND NOT j.tied

-- fragment: any_fence
t.fence BETWEEN 1 AND 9223372036854775807

-- name: succeed
-- The fast path of finish: first-try successes without dependents; returns only the number of accepted
-- ones. All have the same owner, passed once.
-- postgres: counted by the statement; a range that contains every fence makes the planner expect few rows,
-- so that it looks them up one by one, whatever the table held when this was planned
WITH done AS (ol.succeeding AND ol.any_fence RETURNING 1)
SELECT count(*) FROM done
-- sqlite: an update cannot be part of a query; each accepted one is a row
ol.succeeding RETURNING 1

-- name: succeed_tied
-- The same for jobs whose ends may affect others, in the transaction that notifies those: the accepted.
-- postgres: with the range, as in succeed
ol.ending_well AND ol.any_fence RETURNING ol.finish_columns
-- sqlite: rows are looked up one by one anyway
ol.ending_well RETURNING ol.finish_columns

-- name: wait_briefly
-- In this transaction, give up soon when another transaction holds a needed lock.
-- postgres only: for a key that another open transaction may be inserting; on SQLite a transaction
-- that has begun never waits
SELECT set_config('lock_timeout', '200ms', true)

-- fragment: owned_then
COALESCE(a.worker, j.worker) IN (t.worker, t.offered_by)

-- name: finished_claims
-- The state of claims that were not finished: ended before, if the first response was lost; or still
-- running, if there are dependents. Results of another owner with the same fence are left out.
SELECT CAST(j.id AS text), t.fence, t.worker, j.state, a.outcome
FROM ol.rows(id uuid, fence bigint, worker text, offered_by text)
JOIN ol.job AS j ON j.id = t.id
LEFT JOIN ol.attempt AS a ON a.job = t.id AND a.fence = t.fence
WHERE ol.owned_then AND (a.outcome IS NOT NULL OR j.fence = t.fence)

-- name: await_job
-- One job, after every transaction that is changing it.
-- postgres: FOR UPDATE waits for the row's lock, also that of a transaction without its client
SELECT state FROM ol.job WHERE id = ol.id(:id) FOR UPDATE
-- sqlite: one writer at a time
SELECT state FROM ol.job WHERE id = :id

-- name: record_attempts
-- Store the outcomes of attempts that did not succeed at once. (A fence at its limit does not grow: its job
-- may be redriven and end again under the same one.)
INSERT INTO ol.attempt (job, fence, attempt, worker, outcome, error, started_at, finished_at)
SELECT t.job, t.fence, t.attempt, t.worker, t.outcome, ol.json(t.error), ol.moment(t.started_at),
    ol.now()
FROM ol.rows(job uuid, fence bigint, attempt integer, worker text, outcome text, error text,
    started_at double precision)
WHERE true
ON CONFLICT (job, fence) DO NOTHING
