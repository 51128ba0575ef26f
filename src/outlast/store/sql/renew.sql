-- name: renew
-- Renew the claims of jobs in flight; claims that are not returned are lost, or another transaction has
-- locked the row. Planned through the primary key, as in finish.
-- postgres: SKIP LOCKED: one locked row must not cost all others their leases; NO KEY UPDATE: a call that
-- holds a unique key's job from starting does not block it
WITH held AS MATERIALIZED (
    SELECT j.id AS held FROM ol.rows(id uuid, fence bigint) JOIN ol.job AS j ON j.id = t.id
    WHERE j.fence = t.fence AND j.worker = :worker AND j.state || '' = 'running'
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED)
UPDATE ol.job AS j SET lease_until = ol.later(:lease)
WHERE j.id = ANY (ARRAY(SELECT held FROM held))
RETURNING CAST(j.id AS text), j.fence, j.cancelling
-- sqlite: one writer at a time
UPDATE ol.job AS j SET lease_until = ol.later(:lease)
FROM ol.rows(id uuid, fence bigint)
WHERE j.id = t.id AND j.fence = t.fence AND j.worker = :worker AND j.state || '' = 'running'
RETURNING CAST(id AS text), fence, cancelling

-- name: owned
-- The claims that the database has for one worker.
SELECT ol.claim_columns FROM ol.job AS j WHERE j.state = 'running' AND j.worker = :worker

-- fragment: signs
SELECT 'clock', CAST(ol.epoch(ol.now()) AS text)
UNION ALL
SELECT 'lease', NULL WHERE EXISTS (
    SELECT 1 FROM ol.job WHERE state = 'running' AND lease_until < ol.later(:soon))
    OR EXISTS (SELECT 1 FROM ol.job WHERE state = 'running' AND lease_until > ol.later(:far))
UNION ALL
SELECT 'expired', NULL WHERE EXISTS (
    SELECT 1 FROM ol.job WHERE expires_at IS NOT NULL
        AND state IN ('waiting', 'scheduled', 'ready') AND expires_at <= ol.now())
UNION ALL
SELECT 'flow', NULL WHERE EXISTS (
    SELECT 1 FROM ol.flow WHERE cancelled_at IS NOT NULL AND settled_at IS NULL)
UNION ALL
SELECT 'cancel', NULL WHERE EXISTS (SELECT 1 FROM ol.cancel_request)
UNION ALL
SELECT 'late', NULL WHERE EXISTS (SELECT 1 FROM ol.job WHERE state = 'waiting' AND unlinked)
UNION ALL
SELECT 'wait', NULL WHERE EXISTS (SELECT 1 FROM ol.signal WHERE unseen)
    OR EXISTS (SELECT 1 FROM ol.job
        WHERE state = 'waiting' AND wait_until IS NOT NULL AND wait_until <= ol.now())
UNION ALL
SELECT 'schedule', CAST(ol.epoch(due.at) AS text) FROM (
    SELECT next_at AS at FROM ol.schedule
    WHERE paused_at IS NULL AND error IS NULL AND next_at <= ol.now()
    ORDER BY next_at LIMIT 1) AS due
UNION ALL
SELECT 'fleet', CAST(count(*) AS text) FROM ol.worker
WHERE seen_at > ol.ago(60) AND seen_at < ol.later(60) AND id NOT LIKE 'remote-%'

-- fragment: believed
(j.worker LIKE 'offer-%' OR :stable >= COALESCE(
        (SELECT 0.5 * w.lease FROM ol.worker AS w WHERE w.id = j.worker), :unknown))

-- name: signs_of_loss
-- Signs of lost claims: a lease that has expired, soon will, or is from before the clock stepped back; a
-- worker whose liveness lock is free; the clock; the number of workers that share these checks (without
-- remote ones); and whether a job is past its expiry, a schedule due, a flow left half cancelled, a job not
-- linked, a wait timed out, or a signal unseen. Run often by every worker, so it is one statement and locks
-- no row.
-- postgres: a lock taken here is released when the statement ends; a lock from before the server lost its
-- memory went with it, and its absence proves nothing
ol.signs
UNION ALL
SELECT 'worker', w.id FROM ol.worker AS w
WHERE w.proof = ol.proof()
    AND pg_try_advisory_xact_lock(hashtextextended(w.id, 0))
-- sqlite: workers that claim to hold a locked file; the file system shows whether they do
ol.signs
UNION ALL
SELECT 'worker', w.id FROM ol.worker AS w WHERE w.proof IS NOT NULL

-- name: expired_leases
-- Claims whose lease expired although their owner could have renewed, longest first, locked until they are
-- handled. None if this statement arrives later than its sender expects: it has waited for a lock, as
-- renewals have, or the clock has stepped.
-- postgres: SKIP LOCKED, so that sweepers share the work; a statement's own time is that of its
-- arrival, before it waits. The update of no row waits for every lock that a renewal waits for:
-- FOR UPDATE alone passes the SHARE lock of a CREATE INDEX
WITH renewable AS (UPDATE ol.job SET lease_until = lease_until WHERE false RETURNING id)
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.now() AND ol.believed
    AND date_part('epoch', clock_timestamp()) < :until
ORDER BY j.lease_until LIMIT :limit OFFSET :skip
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.now() AND ol.believed
    AND ol.now() < :until
ORDER BY j.lease_until LIMIT :limit OFFSET :skip

-- name: past_deadline
-- Claims that exceed their own deadline although their owner is alive, locked until they are handled. A job
-- that started before :since, when the clock began to run evenly, has run since then at least. None if the
-- clock has stepped since the sender read it, as in expired_leases.
-- postgres: SKIP LOCKED, so that sweepers share the work
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE state = 'running' AND timeout IS NOT NULL
    AND (started_at + make_interval(secs => timeout + :slack) < ol.now() OR started_at > ol.now())
    AND :since + timeout + :slack < ol.epoch(ol.now())
    AND date_part('epoch', clock_timestamp()) < :until
ORDER BY lease_until LIMIT :limit OFFSET :skip
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE state = 'running' AND timeout IS NOT NULL
    AND (started_at + timeout + :slack < ol.now() OR started_at > ol.now())
    AND :since + timeout + :slack < ol.now() AND ol.now() < :until
ORDER BY lease_until LIMIT :limit OFFSET :skip

-- name: jobs_of_workers
-- The running jobs of workers that are gone, locked until they are handled.
-- postgres: SKIP LOCKED, so that sweepers share the work
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE state = 'running' AND worker IN (SELECT ol.each(:workers))
ORDER BY lease_until LIMIT :limit OFFSET :skip
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE state = 'running' AND worker IN (SELECT ol.each(:workers))
ORDER BY lease_until LIMIT :limit OFFSET :skip
