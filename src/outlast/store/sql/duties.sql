-- name: take_duty
-- Take a due duty for one process, and set when it is due again. A duty that is due later
-- than any process sets was taken before the clock stepped back. A duty that this worker took at a time
-- that it does not know is its own: the response was lost.
INSERT INTO ol.duty AS d (name, every, next_at, worker)
VALUES (:name, :every, ol.later(:soon), :worker)
ON CONFLICT (name) DO UPDATE
SET every = excluded.every, next_at = excluded.next_at, worker = excluded.worker
    WHERE d.next_at <= ol.now() OR d.next_at > ol.later(2 * d.every)
        OR d.worker = excluded.worker AND ol.epoch(d.next_at) <> :known
RETURNING ol.epoch(next_at)

-- name: report_duty
-- Record the result of a duty, and its last success.
UPDATE ol.duty
SET succeeded_at = CASE WHEN CAST(:error AS text) IS NULL THEN ol.now() ELSE succeeded_at END,
    found = found + :found, healed = healed + :healed, skipped = skipped + :skipped,
    failed = failed + :failed, error = CAST(:error AS text)
WHERE name = :name

-- name: record_duty
-- Record the result of a duty that every process runs without taking it, and its success.
INSERT INTO ol.duty AS d (name, every, next_at, worker, succeeded_at, found, healed, skipped,
    failed, error)
VALUES (:name, :every, ol.later(:every), :worker,
    CASE WHEN CAST(:error AS text) IS NULL THEN ol.now() END,
    :found, :healed, :skipped, :failed, CAST(:error AS text))
ON CONFLICT (name) DO UPDATE
SET every = excluded.every, next_at = excluded.next_at, worker = excluded.worker,
    succeeded_at = COALESCE(excluded.succeeded_at, d.succeeded_at),
    found = d.found + excluded.found, healed = d.healed + excluded.healed,
    skipped = d.skipped + excluded.skipped, failed = d.failed + excluded.failed,
    error = excluded.error

-- name: duties
-- Every duty and its last result.
SELECT name, every, ol.epoch(next_at), worker, ol.epoch(succeeded_at), found, healed, skipped,
    failed, error
FROM ol.duty ORDER BY name

-- name: expire
-- Cancel jobs that did not start before their expiry.
-- postgres: SKIP LOCKED, so that sweepers share the work; in a CTE, as in claim
WITH late AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready')
        AND expires_at <= ol.now()
    ORDER BY expires_at LIMIT :limit OFFSET :skip FOR UPDATE SKIP LOCKED)
UPDATE ol.job AS j
SET state = 'cancelled', finished_at = ol.now(), ol.no_wait,
    error = CAST('{"type": "Expired", "message": "expires_at passed while it waited"}' AS json)
FROM late WHERE j.id = late.chosen
RETURNING CAST(id AS text), tied
-- sqlite: one writer at a time
UPDATE ol.job
SET state = 'cancelled', finished_at = ol.now(), ol.no_wait,
    error = '{"type": "Expired", "message": "expires_at passed while it waited"}'
WHERE id IN (
    SELECT id FROM ol.job
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready')
        AND expires_at <= ol.now()
    ORDER BY expires_at LIMIT :limit OFFSET :skip)
RETURNING CAST(id AS text), tied

-- fragment: not_needed
(j.flow IS NULL OR NOT EXISTS (SELECT 1 FROM ol.job AS o WHERE o.flow = j.flow
            AND o.flow IS NOT NULL AND o.state IN ('waiting', 'scheduled', 'ready', 'running')
            LIMIT 1 OFFSET 0))
        AND (NOT j.tied OR NOT EXISTS (SELECT 1 FROM ol.edge AS e
            JOIN ol.job AS f ON f.id = e.follower
            WHERE e.job = j.id
                AND (f.state IN ('waiting', 'scheduled', 'ready', 'running', 'dead')
                    OR (f.state = 'cancelled' AND j.state = 'succeeded'))
            LIMIT 1 OFFSET 0))
        AND (NOT j.awaited OR NOT EXISTS (SELECT 1 FROM ol.wait AS w
            WHERE w.awaits = j.id AND w.awaits IS NOT NULL AND w.ended_at IS NULL LIMIT 1 OFFSET 0))

-- name: prune_jobs
-- Remove jobs that ended in one state long enough ago, oldest first; not jobs that a flow needs, or whose
-- end a waiting handler has not seen yet.
-- postgres: SKIP LOCKED, so that no transaction waits for a pruner; in a CTE, as in claim
WITH ended AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job AS j
    WHERE state IN ('succeeded', 'cancelled') AND state = :state AND finished_at < ol.ago(:keep)
        AND ol.not_needed
    ORDER BY finished_at LIMIT :limit FOR UPDATE SKIP LOCKED)
DELETE FROM ol.job AS j USING ended WHERE j.id = ended.chosen
RETURNING CAST(id AS text), CAST(flow AS text), unique_mode, ol.references
-- sqlite: one writer at a time
DELETE FROM ol.job WHERE id IN (
    SELECT id FROM ol.job AS j
    WHERE state IN ('succeeded', 'cancelled') AND state = :state AND finished_at < ol.ago(:keep)
        AND ol.not_needed
    ORDER BY finished_at LIMIT :limit)
RETURNING CAST(id AS text), CAST(flow AS text), unique_mode, ol.references

-- name: queue_retentions
-- Queues with a retention of their own.
SELECT name, keep FROM ol.queue WHERE keep IS NOT NULL ORDER BY name

-- name: ended_in_queue
-- Jobs of a queue that ended between two times, oldest first, and when.
SELECT CAST(id AS text), ol.epoch(finished_at) FROM ol.job
WHERE state IN ('succeeded', 'cancelled') AND finished_at >= ol.moment(:since)
    AND finished_at < ol.moment(:until) AND queue = :queue
ORDER BY finished_at LIMIT :limit

-- name: prune_attempts
-- Remove the attempts of pruned jobs.
DELETE FROM ol.attempt WHERE ol.in_ids(job, :ids)

-- name: prune_events
-- Remove the events of pruned jobs.
DELETE FROM ol.event WHERE ol.in_ids(job, :ids)

-- name: prune_incidents
-- Remove old events that belong to no job and to no operator, among the oldest.
DELETE FROM ol.event WHERE seq IN (
    SELECT o.seq FROM (SELECT e.seq, e.at FROM ol.event AS e
        WHERE e.job IS NULL AND e.kind IN ('worker-lost', 'write-refused', 'wrong-tokens')
        ORDER BY ol.place(e) LIMIT :limit) AS o
    WHERE o.at < ol.ago(:keep))
RETURNING seq

-- name: prune_edges
-- Remove the edges from pruned jobs. Separate from the next statement: each has its own index.
DELETE FROM ol.edge WHERE ol.in_ids(job, :ids)

-- name: prune_ties
-- Remove the edges to pruned jobs.
DELETE FROM ol.edge WHERE ol.in_ids(follower, :ids)

-- name: prune_flows
-- Remove those of the flows that have no jobs.
DELETE FROM ol.flow AS w
WHERE ol.in_ids(w.id, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.flow = w.id AND j.flow IS NOT NULL)

-- name: prune_parts
-- Remove the parts of those flows that have no jobs.
DELETE FROM ol.flow AS w
WHERE w.part_of IS NOT NULL AND ol.in_ids(w.part_of, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.flow = w.part_of AND j.flow IS NOT NULL)

-- name: prune_workers
-- Remove workers without a heartbeat for long, beyond their own leases.
DELETE FROM ol.worker WHERE seen_at < ol.ago(:keep + lease) RETURNING id
