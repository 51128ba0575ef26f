-- name: register_worker
-- Register a process.
INSERT INTO ol.worker (id, host, pid, queues, tasks, concurrency, state, version, lease,
    started_at, seen_at)
VALUES (:id, :host, :pid, ol.json(:queues), ol.json(:tasks), :concurrency, 'working', :version,
    :lease, ol.now(), ol.now())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state

-- name: worker_heartbeat
-- Record a heartbeat; returns whether the proof of liveness is valid.
UPDATE ol.worker SET seen_at = ol.now(), running = :running, state = :state WHERE id = :id
RETURNING proof = ol.proof()

-- name: deregister_worker
-- Deregister a process.
DELETE FROM ol.worker WHERE id = :id

-- name: workers
-- Every worker and offering server, and the age of its last heartbeat.
SELECT ol.worker_columns FROM ol.worker ORDER BY started_at, id

-- name: set_draining
-- Stop or resume the claiming of a worker; no row if unchanged.
UPDATE ol.worker SET drain = ol.boolean(:draining)
WHERE id = :worker AND drain <> ol.boolean(:draining)
RETURNING id

-- name: report_trouble
-- Record why a worker cannot report outcomes, or clear that.
UPDATE ol.worker SET trouble = :trouble WHERE id = :worker
RETURNING id

-- name: troubled_workers
-- Workers that cannot report outcomes, and why.
SELECT id, pid, host, trouble FROM ol.worker WHERE trouble IS NOT NULL ORDER BY id

-- name: draining
-- Whether a worker is asked to drain.
SELECT drain FROM ol.worker WHERE id = :worker

-- name: prove_liveness
-- Record that a worker holds its liveness lock, until this server restarts.
UPDATE ol.worker SET proof = ol.proof() WHERE id = :id
RETURNING id

-- name: still_dead
-- The workers whose liveness lock is still free, locked until this transaction ends.
-- postgres: the rows first: an acquired lock is held until the end of the transaction
WITH named AS MATERIALIZED (
    SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof())
SELECT id FROM named WHERE pg_try_advisory_xact_lock(hashtextextended(id, 0))
-- sqlite: their files have just been checked, and such a file is never locked twice
SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof()

-- name: still_locked
-- The workers whose process holds its liveness lock, and so exists, whatever its leases say.
-- postgres: a lock that cannot be acquired; a free one is held until the end of the transaction
WITH named AS MATERIALIZED (
    SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof())
SELECT id FROM named WHERE NOT pg_try_advisory_xact_lock(hashtextextended(id, 0))
-- sqlite: those that claim to hold a locked file; the file system confirms it
SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof()

-- name: job_owners
-- The workers of these jobs.
SELECT CAST(id AS text), worker FROM ol.job
WHERE ol.in_ids(id, :ids) AND worker IS NOT NULL

-- name: stalls
-- How often jobs were reclaimed from a live process since their last redrive: the event
-- of that end is newer than every redrive's. (Attempts do not count: releases return them.)
SELECT CAST(a.job AS text), count(*)
FROM ol.attempt AS a
JOIN ol.event AS e ON e.job = a.job AND e.fence = a.fence AND e.kind = 'attempt' AND e.n IS NULL
WHERE ol.in_ids(a.job, :ids) AND a.outcome = 'stalled' AND NOT EXISTS (
    SELECT 1 FROM ol.event AS r
    WHERE r.job = a.job AND r.kind = 'redrive' AND r.fence IS NULL AND r.seq > e.seq)
GROUP BY a.job

-- name: remove_workers
-- Delete the registrations of workers that are gone; each is deleted by one process only.
DELETE FROM ol.worker WHERE id IN (SELECT ol.each(:workers))
RETURNING id, host, pid
