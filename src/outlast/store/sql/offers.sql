-- fragment: for_remote
state = 'ready' AND queue = :queue
        AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
        AND task IN (SELECT ol.each(:tasks))
        AND (expires_at IS NULL OR expires_at > ol.now())

-- fragment: offerable
ol.for_remote
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND (q.paused OR q.limited))
        AND (crashes = 0 OR crashes < max_crashes - 1 OR (ol.boolean(:last_life) AND id = (
            SELECT id FROM ol.job
            WHERE ol.for_remote AND crashes > 0 AND crashes >= max_crashes - 1
            ORDER BY priority DESC, run_at, id LIMIT 1)))

-- fragment: to_offer
SELECT id AS chosen FROM ol.job
    WHERE ol.offerable
    ORDER BY priority DESC, run_at, id
    LIMIT :limit

-- fragment: to_offer_on
SELECT id AS chosen FROM ol.job
    WHERE ol.offerable AND ol.from_cursor
    ORDER BY priority DESC, run_at, id
    LIMIT :limit

-- name: claim_offers
-- Take the next ready jobs of one queue for a remote worker: of its tenant, and of tasks it knows.
-- postgres: locked in a CTE and updated by join, as in claim
WITH picked AS MATERIALIZED (ol.to_offer FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: one writer at a time needs no lock clause
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (ol.to_offer)
RETURNING ol.claim_columns

-- name: claim_offers_on
-- The same from where the last full batch began, as in claim_on.
-- postgres: as in claim
WITH picked AS MATERIALIZED (ol.to_offer_on FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: as in claim
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (ol.to_offer_on)
RETURNING ol.claim_columns

-- name: hold_claims
-- Renew the claims of remote workers. The first renewal makes the worker the owner instead of the server
-- that offered the job. Claims that are not returned are lost, or another transaction has locked the row.
-- postgres: SKIP LOCKED, as in renew, and in no order, since it waits for no lock: to keep an order, all
-- jobs would be read along their key. A range that contains every fence, as in succeed
WITH held AS MATERIALIZED (
    SELECT j.id AS held, t.worker AS holder
    FROM ol.rows(id uuid, fence bigint, worker text, offered_by text)
    JOIN ol.job AS j ON j.id = t.id
    WHERE j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'
        AND t.fence BETWEEN 1 AND 9223372036854775807
    FOR UPDATE OF j SKIP LOCKED)
UPDATE ol.job AS j SET lease_until = ol.later(:lease), worker = held.holder,
    started_at = CASE WHEN j.worker = held.holder THEN j.started_at ELSE ol.now() END
FROM held WHERE j.id = held.held
RETURNING CAST(j.id AS text), j.fence, j.worker, j.cancelling
-- sqlite: one writer at a time
UPDATE ol.job AS j SET lease_until = ol.later(:lease), worker = t.worker,
    started_at = CASE WHEN j.worker = t.worker THEN j.started_at ELSE ol.now() END
FROM ol.rows(id uuid, fence bigint, worker text, offered_by text)
WHERE j.id = t.id AND j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'
RETURNING CAST(id AS text), fence, worker, cancelling

-- name: claim_owners
-- The claims, states and owners of offered jobs.
SELECT CAST(j.id AS text), j.fence, j.state, j.worker
FROM ol.rows(id uuid, fence bigint) JOIN ol.job AS j ON j.id = t.id

-- fragment: offered_still
SELECT CAST(j.id AS text), j.fence FROM ol.job AS j
WHERE j.worker = :worker AND j.state || '' = 'running'
    AND (j.id, j.fence) IN (SELECT t.id, t.fence FROM ol.rows(id uuid, fence bigint))
ORDER BY j.id

-- name: still_offered
-- The offers of a server that are not accepted, locked until they are released.
-- postgres: FOR UPDATE, so that an acceptance comes before or after, not in between
ol.offered_still FOR UPDATE
-- sqlite: one writer at a time
ol.offered_still

-- name: stored_events
-- The events that are stored, by the numbers that they had under their claims; events of another
-- owner of the same fence do not count.
SELECT CAST(e.job AS text), e.fence, t.worker, e.n
FROM ol.rows(job uuid, fence bigint, worker text, offered_by text, n bigint)
JOIN ol.event AS e ON e.job = t.job AND e.fence = t.fence AND e.n = t.n
JOIN ol.job AS j ON j.id = t.job
LEFT JOIN ol.attempt AS a ON a.job = t.job AND a.fence = t.fence
WHERE e.n IS NOT NULL AND ol.owned_then

-- name: record_late_events
-- Store events that an attempt reported and its worker could not send any more, under the claim that it held
-- then. A repeated event is stored once. The owner of that claim is in the record of the attempt, or in the
-- job's row.
INSERT INTO ol.event (job, attempt, fence, n, kind, data, at)
SELECT t.job, t.attempt, t.fence, t.n, t.kind, ol.json(t.data), ol.now()
FROM ol.rows(n bigint, job uuid, attempt integer, fence bigint, worker text, offered_by text,
    kind text, data text)
JOIN ol.job AS j ON j.id = t.job
LEFT JOIN ol.attempt AS a ON a.job = t.job AND a.fence = t.fence
WHERE ol.owned_then AND (a.outcome IS NOT NULL OR j.fence = t.fence)
ORDER BY t.n
ON CONFLICT (job, fence, n) WHERE n IS NOT NULL DO NOTHING
RETURNING CAST(job AS text)
