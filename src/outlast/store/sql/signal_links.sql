-- fragment: link_columns
CAST(k.id AS text), CAST(k.job AS text), k.name, k.key, k.text, CAST(k.choices AS text), CAST(k.form AS text),
    k.created_by, ol.epoch(k.created_at), ol.epoch(k.expires_at), ol.epoch(k.used_at),
    ol.epoch(k.revoked_at),
    NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = k.job
        AND j.state IN ('waiting', 'scheduled', 'ready', 'running')),
    ol.epoch(ol.now())

-- name: insert_link
-- Insert a link; idempotent.
INSERT INTO ol.signal_link (id, hash, job, name, key, text, choices, form, created_by, created_at, expires_at)
VALUES (ol.id(:id), :hash, ol.id(:job), :name, :key, :text, ol.json(:choices), ol.json(:form), :by, ol.now(),
    ol.later(:expires_in))
ON CONFLICT DO NOTHING
RETURNING CAST(id AS text)

-- name: link
-- One link, valid or not.
SELECT ol.link_columns FROM ol.signal_link AS k WHERE k.id = ol.id(:id)

-- name: link_by_hash
-- The link of this hash, valid or not.
SELECT ol.link_columns FROM ol.signal_link AS k WHERE k.hash = :hash

-- name: links_of_job
-- The latest links of a job, the newest first.
SELECT ol.link_columns FROM ol.signal_link AS k WHERE k.job = ol.id(:job)
ORDER BY k.id DESC LIMIT :limit

-- name: use_link
-- Use a link, once; no row if it is not valid.
UPDATE ol.signal_link SET used_at = COALESCE(used_at, ol.now()), used_by = :use
WHERE id = ol.id(:id) AND revoked_at IS NULL
    AND ((used_at IS NULL AND expires_at > ol.now()) OR used_by = :use)
RETURNING CAST(id AS text)

-- name: revoke_link
-- Revoke a link; no row if it was used or revoked before.
UPDATE ol.signal_link SET revoked_at = ol.now()
WHERE id = ol.id(:id) AND revoked_at IS NULL AND used_at IS NULL
RETURNING CAST(id AS text)

-- name: links_after
-- A page of jobs that have links on record, and whether each still exists.
SELECT CAST(s.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job) FROM (
    SELECT DISTINCT job FROM ol.signal_link WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS s
ORDER BY s.job

-- name: remove_lost_links
-- Remove links whose job is gone.
DELETE FROM ol.signal_link AS s
WHERE ol.in_ids(s.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)

-- name: prune_links
-- Remove the links of pruned or erased jobs.
DELETE FROM ol.signal_link WHERE ol.in_ids(job, :ids)
