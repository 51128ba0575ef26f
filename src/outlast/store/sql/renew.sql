-- name: renew
-- Hold on to jobs in flight; what is not returned is no longer ours.
-- postgres: all rows travel as one JSON parameter; planned through the primary key, as in finish
UPDATE ol.job AS j SET lease_until = ol.later(:lease)
FROM json_to_recordset(CAST(:rows AS json)) AS t (id uuid, fence bigint)
WHERE j.id = t.id AND j.fence = t.fence AND j.worker = :worker AND j.state || '' = 'running'
RETURNING CAST(j.id AS text), j.fence, j.cancelling
-- sqlite: row by row
UPDATE ol.job AS j SET lease_until = ol.later(:lease)
WHERE j.id = :id AND j.fence = :fence AND j.worker = :worker AND j.state = 'running'
RETURNING CAST(id AS text), fence, cancelling

-- name: owned
-- What the database says that one worker is running.
SELECT ol.claim_columns FROM ol.job AS j WHERE j.state = 'running' AND j.worker = :worker

-- name: any_lost
-- Is there a claim whose lease ran out? Asked often, so it locks nothing.
SELECT 1 FROM ol.job WHERE state = 'running' AND lease_until < ol.now() LIMIT 1

-- name: lost
-- Claims whose lease ran out, longest first, held until they are dealt with.
-- postgres: SKIP LOCKED, so that sweepers share the work
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.now()
ORDER BY j.lease_until LIMIT :limit OFFSET :skip
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.now()
ORDER BY j.lease_until LIMIT :limit OFFSET :skip
