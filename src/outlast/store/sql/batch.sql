-- name: claim_items
-- Take more ready jobs of one task for a batch, from among the next ones of a queue: not past a long run of
-- others, which would have to be read each time. Jobs that one more failure or lost worker might end run
-- alone, so they are left to the claim.
-- postgres: locked in a CTE and updated by join, as in claim; jobs that are not taken are not locked
WITH near AS MATERIALIZED (
    SELECT id, task FROM ol.job WHERE state = 'ready' AND queue = :queue
    ORDER BY priority DESC, run_at, id LIMIT :reach),
picked AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE id IN (SELECT id FROM near WHERE task = :task) AND state = 'ready'
        AND (expires_at IS NULL OR expires_at > ol.now())
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND (q.paused OR q.limited))
        AND (crashes = 0 OR crashes < max_crashes - 1)
        AND (failures = 0 OR failures < max_attempts - 1)
    ORDER BY priority DESC, run_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: one writer at a time needs no lock clause
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (
    SELECT id FROM (
        SELECT * FROM ol.job WHERE state = 'ready' AND queue = :queue
        ORDER BY priority DESC, run_at, id LIMIT :reach)
    WHERE task = :task
        AND (expires_at IS NULL OR expires_at > ol.now())
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND (q.paused OR q.limited))
        AND (crashes = 0 OR crashes < max_crashes - 1)
        AND (failures = 0 OR failures < max_attempts - 1)
    ORDER BY priority DESC, run_at, id
    LIMIT :limit)
RETURNING ol.claim_columns
