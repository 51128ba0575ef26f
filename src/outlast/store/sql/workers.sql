-- name: worker_arrives
-- A process says that it is here.
INSERT INTO ol.worker (id, host, pid, queues, tasks, concurrency, state, version, lease,
    started_at, seen_at)
VALUES (:id, :host, :pid, ol.json(:queues), ol.json(:tasks), :concurrency, 'working', :version,
    :lease, ol.now(), ol.now())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state

-- name: worker_lives
-- A process says that it is still here.
UPDATE ol.worker SET seen_at = ol.now(), running = :running, state = :state WHERE id = :id
RETURNING id

-- name: worker_leaves
-- A process says that it is gone.
DELETE FROM ol.worker WHERE id = :id

-- name: workers
-- Every process that works, and how long ago it was heard of.
SELECT id, host, pid, CAST(queues AS text), CAST(tasks AS text), concurrency, running, state,
    version, lease, ol.epoch(started_at), ol.epoch(seen_at), ol.epoch(ol.now()) - ol.epoch(seen_at)
FROM ol.worker ORDER BY started_at, id

-- name: prove_life
-- A worker holds its liveness lock from now on.
-- postgres: under this start of the server; after another, the proof has to be given anew
UPDATE ol.worker SET proof = CAST(extract(epoch FROM pg_postmaster_start_time()) AS text)
WHERE id = :id
RETURNING id
-- sqlite: a locked file
UPDATE ol.worker SET proof = 'file' WHERE id = :id
RETURNING id

-- name: bury_workers
-- Take down the cards of workers that are gone; each is buried by one process only.
DELETE FROM ol.worker WHERE id IN (SELECT ol.each(:workers))
RETURNING id, host, pid
