-- name: proven
-- Workers that hold their liveness lock, as their cards say.
SELECT w.id FROM ol.worker AS w WHERE w.proof IS NOT NULL

-- name: forget_claims
-- Bring running jobs back to before their claims, as a standby has them that never heard of these.
UPDATE ol.job AS j
SET state = 'ready', attempt = attempt - 1, fence = fence - 1, worker = NULL, lease_until = NULL,
    started_at = NULL
WHERE ol.in_ids(id, :ids) AND state || '' = 'running'

-- name: expire_leases
-- Let the leases of a queue end an hour ago, as a step of the clock does.
UPDATE ol.job SET lease_until = ol.ago(3600) WHERE state = 'running' AND queue = :queue

-- name: put_duty_off
-- Make a duty due in an hour, as a step of the clock back does.
UPDATE ol.duty SET next_at = ol.later(3600) WHERE name = :name
