-- name: commit_lazily
-- In this transaction, commit asynchronously: room lost in a crash is counted again, and the
-- log is ordered, so no job becomes durable before its reservation.
-- postgres only: on SQLite a waiting commit blocks no other rows
SELECT set_config('synchronous_commit', 'off', true)

-- name: take_room
-- Reserve room for new jobs, if enough is left since the last count.
UPDATE ol.admission SET room = room - :asked WHERE queue = :queue AND room >= :asked RETURNING room

-- fragment: room_columns
b.most_waiting, b.overflow, COALESCE(a.room, 0), COALESCE(a.waiting, 0),
    COALESCE(ol.epoch(ol.now()) - ol.epoch(a.counted_at), -1)

-- name: read_room
-- A queue's limit, its remaining room, and the age of its count; negative: never counted.
SELECT ol.room_columns FROM ol.queue AS b LEFT JOIN ol.admission AS a ON a.queue = b.name
WHERE b.name = :queue

-- name: hold_room
-- Take the exclusive right to count a queue's jobs.
INSERT INTO ol.admission AS a (queue, room, waiting, counted_at)
VALUES (:queue, 0, 0, ol.moment(0))
ON CONFLICT (queue) DO UPDATE SET room = a.room
RETURNING room

-- name: count_ready
-- The number of ready jobs of a queue, counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM ol.job WHERE state = 'ready' AND queue = :queue LIMIT :limit) AS counted

-- name: set_room
-- Store a count.
UPDATE ol.admission SET room = :room, waiting = :waiting, counted_at = ol.now() WHERE queue = :queue

-- name: forget_room
-- Invalidate a count.
UPDATE ol.admission SET room = 0, counted_at = ol.moment(0) WHERE queue = :queue

-- fragment: lowest_ready
SELECT id FROM ol.job WHERE state = 'ready' AND queue = :queue AND ol.not_in_ids(id, :new)
    AND priority = (SELECT priority FROM ol.job
        WHERE state = 'ready' AND queue = :queue AND ol.not_in_ids(id, :new)
        ORDER BY priority LIMIT 1)
ORDER BY run_at, id LIMIT :limit

-- name: oldest_ready
-- The jobs of a queue's lowest priority that have waited longest, without the new ones.
-- postgres: SKIP LOCKED: a job that another transaction has locked is about to start
SELECT CAST(o.id AS text) FROM (ol.lowest_ready FOR UPDATE SKIP LOCKED) AS o
-- sqlite: one writer at a time
SELECT o.id FROM (ol.lowest_ready) AS o

-- name: drop_jobs
-- Cancel jobs for which a full queue has no room.
UPDATE ol.job AS j SET state = 'cancelled', finished_at = ol.now(), ol.no_wait,
    error = ol.json(:error)
WHERE ol.in_ids(id, :ids) AND state || '' IN ('waiting', 'scheduled', 'ready')
RETURNING CAST(id AS text), tied
