-- name: step
-- The stored result of a step.
SELECT CAST(result AS text) FROM ol.step WHERE job = ol.id(:job) AND name = :name

-- name: steps
-- The stored steps of a job, in order.
SELECT name, attempt, ol.epoch(at) FROM ol.step WHERE job = ol.id(:id) ORDER BY at, name

-- name: keep_step
-- Store the result of a step, if its claim still holds; idempotent under that claim.
-- postgres: the job's row is locked, so that no claim ends between the check and the insert
INSERT INTO ol.step AS s (job, name, result, fence, attempt, at)
SELECT j.id, :name, ol.json(:result), j.fence, j.attempt, ol.now()
FROM ol.job AS j WHERE j.id = ol.id(:job) AND j.fence = :fence
    AND j.worker IN (:worker, :offered_by) AND j.state || '' = 'running'
FOR NO KEY UPDATE
ON CONFLICT (job, name) DO UPDATE SET fence = excluded.fence WHERE s.fence = excluded.fence
RETURNING CAST(result AS text)
-- sqlite: one writer at a time
INSERT INTO ol.step AS s (job, name, result, fence, attempt, at)
SELECT j.id, :name, :result, j.fence, j.attempt, ol.now()
FROM ol.job AS j WHERE j.id = :job AND j.fence = :fence
    AND j.worker IN (:worker, :offered_by) AND j.state = 'running'
ON CONFLICT (job, name) DO UPDATE SET fence = excluded.fence WHERE s.fence = excluded.fence
RETURNING CAST(result AS text)

-- name: prune_steps
-- Remove the steps of pruned jobs.
DELETE FROM ol.step WHERE ol.in_ids(job, :ids)

-- name: steps_after
-- A page of jobs that have steps on record, and whether each still exists.
SELECT CAST(s.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job) FROM (
    SELECT DISTINCT job FROM ol.step WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS s
ORDER BY s.job

-- name: remove_lost_steps
-- Remove steps whose job is gone.
DELETE FROM ol.step AS s
WHERE ol.in_ids(s.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)
