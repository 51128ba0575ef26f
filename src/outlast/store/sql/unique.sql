-- name: lock_unique_keys
-- Lock the existing keys of a call, all at once and in one order: with two steps, for debounced and for
-- taken keys, two calls with many keys would wait for each other.
-- postgres only: on SQLite there is one writer at a time
SELECT u.key
FROM ol.rows(tenant text, queue text, key text)
JOIN ol.unique_key AS u ON u.tenant = t.tenant AND u.queue = t.queue AND u.key = t.key
ORDER BY u.tenant, u.queue, u.key FOR UPDATE OF u

-- name: key_holders
-- The job that holds each unique key, if any, whether it blocks a new one, and whether the new one was sent
-- before. A period that begins later than a period from now is from before the clock stepped back, and is
-- over.
SELECT CAST(t.id AS text), CAST(u.job AS text),
    CASE t.unique_mode WHEN 'active' THEN j.state IN ('waiting', 'scheduled', 'ready', 'running')
        WHEN 'period' THEN u.taken_at > ol.ago(t.unique_span) AND u.taken_at < ol.later(t.unique_span)
            AND j.id IS NOT NULL
        ELSE j.state IN ('waiting', 'scheduled', 'ready') AND j.wait_name IS NULL END,
    EXISTS (SELECT 1 FROM ol.job AS own WHERE own.id = t.id),
    ol.job_columns
FROM ol.rows(id uuid, tenant text, queue text, key text, unique_mode text,
    unique_span double precision)
JOIN ol.unique_key AS u ON u.tenant = t.tenant AND u.queue = t.queue AND u.key = t.key
LEFT JOIN ol.job AS j ON j.id = u.job

-- name: hold_waiting
-- Lock jobs that have not started against a start before this transaction ends: its writes are visible to
-- them then.
-- postgres: KEY SHARE: others may lock them, too, and a claim skips them; no renewal or finish waits for it
SELECT CAST(id AS text) FROM ol.job
WHERE ol.in_ids(id, :ids) AND state || '' IN ('waiting', 'scheduled', 'ready')
ORDER BY id FOR KEY SHARE
-- sqlite: one writer at a time
SELECT id FROM ol.job
WHERE ol.in_ids(id, :ids) AND state || '' IN ('waiting', 'scheduled', 'ready')
ORDER BY id

-- name: take_unique_keys
-- Make new jobs the holders of keys that are free, or held by jobs that may be replaced.
INSERT INTO ol.unique_key AS u (tenant, queue, key, job, taken_at)
SELECT t.tenant, t.queue, t.key, t.id, ol.now()
FROM ol.rows(id uuid, tenant text, queue text, key text)
WHERE true
ORDER BY t.tenant, t.queue, t.key
ON CONFLICT (tenant, queue, key) DO UPDATE SET job = excluded.job, taken_at = excluded.taken_at
    WHERE ol.in_ids(u.job, :ids)
RETURNING CAST(job AS text)

-- name: hold_debounced
-- The first call of debounced keys, by job; locked, so that calls of one key are serialised.
-- A first call in the future is from before the clock stepped back.
-- postgres: in the order of the keys, which two calls with many keys then share
WITH held AS MATERIALIZED (
    SELECT u.tenant, u.queue, u.key FROM ol.unique_key AS u WHERE ol.in_ids(u.job, :ids)
    ORDER BY u.tenant, u.queue, u.key FOR UPDATE)
UPDATE ol.unique_key AS u SET taken_at = LEAST(u.taken_at, ol.now()) FROM held
WHERE u.tenant = held.tenant AND u.queue = held.queue AND u.key = held.key
RETURNING CAST(u.job AS text), ol.epoch(u.taken_at)
-- sqlite: one writer at a time
UPDATE ol.unique_key SET taken_at = min(taken_at, ol.now()) WHERE ol.in_ids(job, :ids)
RETURNING job, ol.epoch(taken_at)

-- fragment: deferred_until
CASE WHEN t.first + t.max_wait < ol.epoch(ol.now()) + t.delay
        THEN ol.moment(t.first + t.max_wait) ELSE ol.later(t.delay) END

-- name: replace_waiting
-- Replace the arguments of jobs that have not started, and defer them; a job that waits for its next attempt
-- keeps its due time. Returns them, and whether their attempts may have stored steps.
UPDATE ol.job AS j
SET args = ol.json(t.args), trace = t.trace,
    expires_at = COALESCE(ol.moment(t.expires_at), ol.later(t.expires_in)),
    run_at = CASE WHEN j.fence > 0 THEN j.run_at ELSE ol.deferred_until END,
    state = CASE WHEN j.fence > 0 THEN j.state WHEN ol.deferred_until > ol.now() THEN 'scheduled'
        ELSE 'ready' END
FROM ol.rows(id uuid, args text, trace text, expires_at double precision,
    expires_in double precision, first double precision, delay double precision,
    max_wait double precision)
WHERE j.id = t.id AND j.state || '' IN ('scheduled', 'ready')
RETURNING CAST(ol.updated(id) AS text), ol.updated(fence) > 0

-- name: release_unique_keys
-- Delete the keys of removed jobs.
-- postgres: SKIP LOCKED: one that is locked is being taken over
DELETE FROM ol.unique_key AS u WHERE (u.tenant, u.queue, u.key) IN (
    SELECT k.tenant, k.queue, k.key FROM ol.unique_key AS k WHERE ol.in_ids(k.job, :ids)
    ORDER BY k.tenant, k.queue, k.key FOR UPDATE SKIP LOCKED)
-- sqlite: one writer at a time
DELETE FROM ol.unique_key WHERE ol.in_ids(job, :ids)

-- name: ended_active_keys
-- The ended jobs that would need their keys exclusively if redriven.
SELECT CAST(id AS text), tenant, queue, key FROM ol.job
WHERE ol.in_ids(id, :ids) AND unique_mode = 'active' AND key IS NOT NULL
    AND state || '' IN ('dead', 'cancelled')
ORDER BY id DESC

-- name: unique_keys_after
-- A page of jobs that hold unique keys, and whether each still exists.
SELECT CAST(u.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = u.job) FROM (
    SELECT DISTINCT job FROM ol.unique_key WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS u
ORDER BY u.job

-- name: remove_lost_unique_keys
-- Remove unique keys whose job is gone: one that was held while its job was pruned, by a call that was
-- rolled back.
DELETE FROM ol.unique_key AS u
WHERE ol.in_ids(u.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = u.job)
RETURNING CAST(job AS text)

-- name: unique_mode
-- The unique mode of a job's key.
SELECT unique_mode FROM ol.job WHERE id = ol.id(:id)
