-- name: flows
-- A page of flows, newest first, after a cursor; all of them, or only unfinished ones.
SELECT CAST(w.id AS text), w.name, w.reason, ol.epoch(w.created_at), ol.epoch(w.cancelled_at),
    w.key
FROM ol.flow AS w
WHERE w.part_of IS NULL AND w.id < ol.id(:before)
    AND (NOT ol.boolean(:live) OR EXISTS (
        SELECT 1 FROM ol.job AS j WHERE j.flow = w.id AND j.flow IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'ready', 'running')))
ORDER BY w.id DESC LIMIT :limit

-- name: counts_of_flows
-- The jobs of some flows, counted by state.
SELECT CAST(flow AS text), state, count(*) FROM ol.job
WHERE ol.in_ids(flow, :ids) AND flow IS NOT NULL
GROUP BY flow, state

-- name: flow_outline
-- A flow's jobs without arguments and results: enough to draw them.
SELECT CAST(id AS text), task, state, attempt, waits_for, cancelling, CAST(error AS text),
    ol.epoch(run_at), ol.epoch(started_at), ol.epoch(finished_at)
FROM ol.job WHERE flow = ol.id(:id) AND flow IS NOT NULL
ORDER BY id LIMIT :limit

-- name: followers
-- The first few dependents of a job.
SELECT CAST(f.id AS text), f.task, f.state
FROM ol.edge AS e JOIN ol.job AS f ON f.id = e.follower
WHERE e.job = ol.id(:id) ORDER BY f.id LIMIT :limit

-- name: broken_in_flow
-- A page of the dead or cancelled jobs of a flow, in the order of enqueue.
SELECT CAST(id AS text) FROM ol.job
WHERE flow = ol.id(:id) AND flow IS NOT NULL AND id > ol.id(:after)
    AND state IN ('dead', 'cancelled')
ORDER BY id LIMIT :limit

-- name: reopen_flow
-- Reset a flow and its parts: no cancellation and no failures. Not
-- those with jobs still to be cancelled.
UPDATE ol.flow AS w SET cancelled_at = NULL, settled_at = NULL, reason = NULL, failed = 0
WHERE (w.id = ol.id(:id) OR w.part_of = ol.id(:id))
    AND (w.cancelled_at IS NULL OR w.settled_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM ol.job AS j
        WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL AND (j.team = w.id OR w.part_of IS NULL)
            AND j.state IN ('waiting', 'scheduled', 'ready', 'running')))

-- name: reopen_flows_of
-- Ended jobs will run again: clear the cancellation of their flows, or the jobs that they add would be
-- dropped. Not of flows with jobs still to be cancelled.
UPDATE ol.flow SET cancelled_at = NULL, settled_at = NULL, reason = NULL, failed = 0
WHERE settled_at IS NOT NULL AND id IN (
    SELECT flow FROM ol.job
    WHERE ol.in_ids(id, :ids) AND state IN ('dead', 'cancelled')
    UNION SELECT team FROM ol.job
    WHERE ol.in_ids(id, :ids) AND state IN ('dead', 'cancelled'))

-- name: in_open_flows
-- The jobs whose flow and group are not cancelled, locked so that none is cancelled until the transaction
-- ends.
-- postgres: a share lock, as for joins of a flow
WITH held AS MATERIALIZED (
    SELECT w.id, w.cancelled_at FROM ol.flow AS w
    WHERE w.id IN (
        SELECT flow FROM ol.job WHERE ol.in_ids(id, :ids)
        UNION SELECT team FROM ol.job WHERE ol.in_ids(id, :ids))
    ORDER BY w.id FOR SHARE OF w)
SELECT CAST(j.id AS text) FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND NOT EXISTS (
    SELECT 1 FROM held AS w WHERE w.id IN (j.flow, j.team) AND w.cancelled_at IS NOT NULL)
-- sqlite: one writer at a time
SELECT CAST(j.id AS text) FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND NOT EXISTS (
    SELECT 1 FROM ol.flow AS w WHERE w.id IN (j.flow, j.team) AND w.cancelled_at IS NOT NULL)

-- name: reset_group_failures
-- Uncount the failures of redriven jobs, which may fail again.
UPDATE ol.flow AS w
SET failed = CASE WHEN w.failed > t.revived THEN w.failed - t.revived ELSE 0 END
FROM (SELECT team, count(*) AS revived FROM ol.job
    WHERE ol.in_ids(id, :ids) AND team IS NOT NULL GROUP BY team) AS t
WHERE w.id = t.team AND w.cancelled_at IS NULL

-- name: still_cancelling
-- Whether a flow, or a part of it, is still being cancelled.
SELECT EXISTS (SELECT 1 FROM ol.flow AS w
        WHERE (w.id = ol.id(:id) OR w.part_of = ol.id(:id))
            AND w.cancelled_at IS NOT NULL AND w.settled_at IS NULL)
    OR EXISTS (SELECT 1 FROM ol.job AS j
        WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'ready', 'running') AND j.cancelling)
