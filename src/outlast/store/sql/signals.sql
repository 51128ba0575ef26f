-- name: hold_recipient
-- Lock the job that a signal is for.
-- postgres: the end of an attempt and the signal of another process come one after the other
SELECT j.state, j.task, j.queue FROM ol.job AS j
WHERE j.id = ol.id(:id) AND ol.in_reach FOR UPDATE
-- sqlite: one writer at a time
SELECT j.state, j.task, j.queue FROM ol.job AS j
WHERE j.id = :id AND ol.in_reach

-- name: read_recipient
-- The job that a signal is for, without a lock.
SELECT j.state, j.task, j.queue FROM ol.job AS j
WHERE j.id = ol.id(:id) AND ol.in_reach

-- name: insert_signal
-- Store a signal; one whose key was used before is not stored again.
INSERT INTO ol.signal (job, name, value, key, sent_by, at, unseen)
VALUES (ol.id(:job), :name, ol.json(:value), :key, :by, ol.now(), ol.boolean(:unseen))
ON CONFLICT DO NOTHING
RETURNING seq

-- name: send_signal
-- Store a signal, record it, start its job if it waits for it, and notify idle workers. Nothing of it if the
-- job has ended, the key was used before, or the job began to wait while this statement waited for its
-- lock: its snapshot is older, and does not show what the job waits for.
-- postgres only: on SQLite round trips cost nothing; see notify_workers
WITH held AS MATERIALIZED (
    SELECT j.id AS job, j.state, j.wait_name, j.fence FROM ol.job AS j
    WHERE j.id = ol.id(:job) FOR UPDATE),
waits AS MATERIALIZED (
    SELECT w.kind, w.subjects FROM held JOIN ol.wait AS w ON w.job = held.job
    WHERE held.state = 'waiting' AND w.name = held.wait_name AND w.fence = held.fence),
kept AS (
    INSERT INTO ol.signal (job, name, value, key, sent_by, at, unseen)
    SELECT held.job, :name, ol.json(:value), :key, :by, ol.now(), false FROM held
    WHERE held.state IN ('scheduled', 'ready', 'running')
        OR (held.state = 'waiting' AND (held.wait_name IS NULL OR EXISTS (SELECT 1 FROM waits)))
    ON CONFLICT DO NOTHING
    RETURNING seq),
started AS (
    UPDATE ol.job AS j SET ol.woken FROM kept, waits
    WHERE j.id = ol.id(:job) AND waits.kind = 'signal' AND :name IN (SELECT ol.each(waits.subjects))
    RETURNING j.queue, pg_notify(:channel, j.queue) IS NULL AS notified)
INSERT INTO ol.event (job, attempt, kind, data, at)
SELECT ol.id(:job), NULL, 'signal', ol.json(:data), ol.now() FROM kept
RETURNING (SELECT started.queue FROM started)

-- name: signal_of_key
-- The value of the signal that was sent under a key.
SELECT CAST(value AS text) FROM ol.signal
WHERE job = ol.id(:job) AND name = :name AND key = :key AND key IS NOT NULL

-- name: take_unseen_signals
-- Take a page of signals that callers' transactions have sent and committed; their jobs are locked.
-- postgres: SKIP LOCKED, so that workers share the work; the signal of a job that is locked is left for
-- the next pass
WITH sent AS MATERIALIZED (
    SELECT seq, job FROM ol.signal WHERE unseen ORDER BY seq LIMIT :limit OFFSET :skip
    FOR UPDATE SKIP LOCKED),
held AS MATERIALIZED (
    SELECT id FROM ol.job WHERE id IN (SELECT sent.job FROM sent)
    ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE ol.signal SET unseen = false WHERE seq IN (
    SELECT sent.seq FROM sent WHERE sent.job IN (SELECT held.id FROM held)
        OR NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = sent.job))
RETURNING CAST(job AS text)
-- sqlite: one writer at a time
UPDATE ol.signal SET unseen = false WHERE seq IN (
    SELECT seq FROM ol.signal WHERE unseen ORDER BY seq LIMIT :limit OFFSET :skip)
RETURNING job

-- name: signals
-- The latest signals of a job, the newest first.
SELECT seq, name, key, sent_by, ol.epoch(at), taken_by FROM ol.signal
WHERE job = ol.id(:id) ORDER BY seq DESC LIMIT :limit

-- name: signals_after
-- A page of jobs that have signals on record, and whether each still exists.
SELECT CAST(s.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job) FROM (
    SELECT DISTINCT job FROM ol.signal WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS s
ORDER BY s.job

-- name: remove_lost_signals
-- Remove signals whose job is gone: their sender committed later.
DELETE FROM ol.signal AS s
WHERE ol.in_ids(s.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)

-- name: prune_signals
-- Remove the signals of pruned jobs.
DELETE FROM ol.signal WHERE ol.in_ids(job, :ids)
