-- name: register_worker
-- A process says that it is here.
INSERT INTO ol.worker (id, host, pid, queues, tasks, concurrency, state, version, lease,
    started_at, seen_at)
VALUES (:id, :host, :pid, ol.json(:queues), ol.json(:tasks), :concurrency, 'working', :version,
    :lease, ol.now(), ol.now())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state

-- name: worker_heartbeat
-- A process says that it is still here, and is told whether its proof of life stands.
UPDATE ol.worker SET seen_at = ol.now(), running = :running, state = :state WHERE id = :id
RETURNING proof = ol.proof()

-- name: deregister_worker
-- A process says that it is gone.
DELETE FROM ol.worker WHERE id = :id

-- name: workers
-- Every process that works, or offers jobs to those who do, and how long ago it was heard of.
SELECT ol.worker_columns FROM ol.worker ORDER BY started_at, id

-- name: set_draining
-- Tell a worker to claim no more, or to do so again; no row if it was told so before.
UPDATE ol.worker SET drain = ol.boolean(:draining)
WHERE id = :worker AND drain <> ol.boolean(:draining)
RETURNING id

-- name: report_trouble
-- A worker says why it cannot hand in outcomes, or that it can again.
UPDATE ol.worker SET trouble = :trouble WHERE id = :worker
RETURNING id

-- name: troubled_workers
-- Workers that are heard of and cannot hand in outcomes, and why.
SELECT id, pid, host, trouble FROM ol.worker WHERE trouble IS NOT NULL ORDER BY id

-- name: draining
-- Whether somebody told a worker to claim no more.
SELECT drain FROM ol.worker WHERE id = :worker

-- name: prove_liveness
-- A worker holds its liveness lock from now on, as long as this server keeps its memory.
UPDATE ol.worker SET proof = ol.proof() WHERE id = :id
RETURNING id

-- name: still_dead
-- Those of the workers whose liveness lock is free even now, and cannot be taken before we are done.
-- postgres: the cards first: a lock that is tried is held until the end of the transaction
WITH named AS MATERIALIZED (
    SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof())
SELECT id FROM named WHERE pg_try_advisory_xact_lock(hashtextextended(id, 0))
-- sqlite: their files were looked at just now, and nobody takes such a file twice
SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof()

-- name: still_locked
-- Those of the workers whose process holds its liveness lock, and so exists, whatever its leases say.
-- postgres: a lock that cannot be had; one that was free is held until the end of the transaction
WITH named AS MATERIALIZED (
    SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof())
SELECT id FROM named WHERE NOT pg_try_advisory_xact_lock(hashtextextended(id, 0))
-- sqlite: which of them claim to hold a locked file; whether they do is asked of the file system
SELECT id FROM ol.worker WHERE id IN (SELECT ol.each(:workers)) AND proof = ol.proof()

-- name: job_owners
-- Who runs these jobs.
SELECT CAST(id AS text), worker FROM ol.job
WHERE ol.in_ids(id, :ids) AND worker IS NOT NULL

-- name: stalls
-- How often jobs were taken back from a process that existed, since they were last redriven: the event
-- of that end is newer than every redrive's. (Attempts do not tell: releases give them back.)
SELECT CAST(a.job AS text), count(*)
FROM ol.attempt AS a
JOIN ol.event AS e ON e.job = a.job AND e.fence = a.fence AND e.kind = 'attempt' AND e.n IS NULL
WHERE ol.in_ids(a.job, :ids) AND a.outcome = 'stalled' AND NOT EXISTS (
    SELECT 1 FROM ol.event AS r
    WHERE r.job = a.job AND r.kind = 'redrive' AND r.fence IS NULL AND r.seq > e.seq)
GROUP BY a.job

-- name: remove_workers
-- Take down the cards of workers that are gone; each is buried by one process only.
DELETE FROM ol.worker WHERE id IN (SELECT ol.each(:workers))
RETURNING id, host, pid
