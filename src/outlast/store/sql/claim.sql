-- name: promote_due
-- Make due scheduled jobs ready, oldest first.
-- postgres: SKIP LOCKED, so that two promoters share the work; in a CTE, as in claim
WITH due AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job WHERE state = 'scheduled' AND run_at <= ol.now()
    ORDER BY run_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
UPDATE ol.job AS j SET state = 'ready', ol.no_wait FROM due WHERE j.id = due.chosen
-- sqlite: one writer at a time
UPDATE ol.job SET state = 'ready', ol.no_wait
WHERE id IN (
    SELECT id FROM ol.job WHERE state = 'scheduled' AND run_at <= ol.now()
    ORDER BY run_at, id LIMIT :limit)

-- fragment: no_breaker
CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS double precision),
    CAST(NULL AS integer)

-- fragment: is_limited
EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = hop.queue AND q.limited)

-- fragment: due_and_breakers
SELECT NULL, ol.no_breaker, ol.boolean(NULL)
WHERE EXISTS (SELECT 1 FROM ol.job WHERE state = 'scheduled' AND run_at <= ol.now())
UNION ALL
SELECT ol.breaker_columns, ol.probe_due FROM ol.breaker AS b

-- name: poll
-- Queues with something to claim, found by hopping from name to name along the index; as a NULL, whether
-- scheduled jobs are due; and the open breakers. The last column shows of a queue whether it is limited, of
-- a breaker whether it may be probed. Called often, by idle workers, so it locks nothing.
WITH RECURSIVE hop (queue) AS (
    SELECT (SELECT queue FROM ol.job WHERE state = 'ready' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM ol.job AS j
        WHERE j.state = 'ready' AND j.queue > hop.queue ORDER BY j.queue LIMIT 1)
    FROM hop WHERE hop.queue IS NOT NULL)
SELECT hop.queue, ol.no_breaker, ol.is_limited FROM hop
WHERE hop.queue IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = hop.queue AND q.paused)
UNION ALL
ol.due_and_breakers

-- name: poll_queues
-- The same for named queues only, each looked up by itself: a sub-select is never turned into a join
-- that reads all ready jobs.
SELECT t.queue, ol.no_breaker, EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = t.queue
    AND q.limited)
FROM ol.rows(queue text)
WHERE (SELECT 1 FROM ol.job AS j WHERE j.state = 'ready' AND j.queue = t.queue LIMIT 1) IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = t.queue AND q.paused)
UNION ALL
ol.due_and_breakers

-- fragment: startable
(expires_at IS NULL OR expires_at > ol.now())
        AND (task IN (SELECT ol.each(:tasks))) = ol.boolean(:known)

-- (A sum could overflow, and then no job of the queue could be claimed: so a difference is compared.)
-- fragment: claimable
state = 'ready' AND queue = :queue AND ol.startable
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND (q.paused OR q.limited))
        AND ol.one_last_life

-- fragment: one_last_life
(crashes = 0 OR crashes < max_crashes - 1 OR (ol.boolean(:last_life) AND id = (
            SELECT id FROM ol.job
            WHERE state = 'ready' AND queue = :queue AND crashes > 0 AND crashes >= max_crashes - 1
                AND ol.startable
            ORDER BY priority DESC, run_at, id LIMIT 1)))

-- fragment: startable_of_tenant
(CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND ol.startable

-- fragment: claimable_in_each
state = 'ready' AND queue = t.queue AND ol.startable_of_tenant
            AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = t.queue AND (q.paused OR q.limited))
            AND (crashes = 0 OR crashes < max_crashes - 1 OR (ol.boolean(:last_life) AND id = (
                SELECT id FROM ol.job
                WHERE state = 'ready' AND queue IN (SELECT t.queue FROM ol.rows(queue text))
                    AND crashes > 0 AND crashes >= max_crashes - 1 AND ol.startable_of_tenant
                ORDER BY queue, priority DESC, run_at, id LIMIT 1)))

-- fragment: taken
state = 'running', attempt = j.attempt + CASE WHEN j.attempt < 2147483647 THEN 1 ELSE 0 END,
    fence = j.fence + CASE WHEN j.fence < 9223372036854775807 THEN 1 ELSE 0 END, worker = :worker,
    lease_until = ol.later(:lease), started_at = ol.now()

-- fragment: take_picked
UPDATE ol.job AS j SET ol.taken
FROM picked WHERE j.id = picked.chosen
RETURNING ol.claim_columns

-- fragment: from_cursor
priority = :priority
        AND (run_at, id) >= (ol.moment(:run_at), ol.id(:id))

-- name: claim
-- Take the next ready jobs of one queue, highest priority first, then the longest due.
-- postgres: locked in a CTE and updated by join: a sub-select may be run again for every row, and
-- then takes more than its LIMIT
WITH picked AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE ol.claimable
    ORDER BY priority DESC, run_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: one writer at a time needs no lock clause
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (
    SELECT id FROM ol.job
    WHERE ol.claimable
    ORDER BY priority DESC, run_at, id
    LIMIT :limit)
RETURNING ol.claim_columns

-- fragment: picked_on
SELECT id AS chosen FROM ol.job
    WHERE ol.claimable AND ol.from_cursor
    ORDER BY priority DESC, run_at, id
    LIMIT :limit

-- name: claim_on
-- The same from where the last full batch began: jobs taken since then leave dead entries in the index,
-- which must not be walked again and again while another session's old snapshot keeps them.
-- postgres: as in claim
WITH picked AS MATERIALIZED (ol.picked_on FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: as in claim
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (ol.picked_on)
RETURNING ol.claim_columns

-- name: claim_across
-- Take the next ready jobs of each of several queues that hold few, in the given order: a queue with one job
-- does not cost a round trip of its own. For a worker of one tenant (a remote one), only that tenant's.
-- postgres: locked where they are picked, queue by queue, and only as many as are taken
WITH picked AS MATERIALIZED (
    SELECT near.chosen FROM ol.rows(queue text)
    CROSS JOIN LATERAL (
        SELECT id AS chosen FROM ol.job
        WHERE ol.claimable_in_each
        ORDER BY priority DESC, run_at, id
        LIMIT :each
        FOR UPDATE SKIP LOCKED) AS near
    LIMIT :limit)
ol.take_picked
-- sqlite: has no LATERAL; CROSS JOIN keeps the order of the loops
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (
    SELECT near.id FROM ol.rows(queue text) CROSS JOIN ol.job AS near
    WHERE near.id IN (
        SELECT id FROM ol.job
        WHERE ol.claimable_in_each
        ORDER BY priority DESC, run_at, id
        LIMIT :each)
    LIMIT :limit)
RETURNING ol.claim_columns

-- fragment: in_line
state = 'ready' AND queue = :queue AND ol.startable_of_tenant

-- Priorities with jobs that can start, and where the jobs of each begin: found by hopping from priority
-- to priority along the index, from a cursor on if one is given.
-- fragment: priority_heads
heads (priority, run_at, id) AS (
    SELECT COALESCE(CAST(:priority AS integer),
            (SELECT priority FROM ol.job WHERE ol.in_line ORDER BY priority DESC LIMIT 1)),
        COALESCE(ol.moment(CAST(:run_at AS double precision)), ol.moment(-1e11)),
        COALESCE(ol.id(:id), ol.id('00000000-0000-0000-0000-000000000000'))
    UNION ALL
    SELECT (SELECT priority FROM ol.job WHERE ol.in_line AND priority < heads.priority
            ORDER BY priority DESC LIMIT 1),
        ol.moment(-1e11), ol.id('00000000-0000-0000-0000-000000000000')
    FROM heads WHERE heads.priority IS NOT NULL),
longest AS MATERIALIZED (
    SELECT found.priority, found.run_at, found.id FROM (
        SELECT heads.priority, heads.run_at, heads.id, (
            SELECT run_at FROM ol.job WHERE ol.in_line AND priority = heads.priority
                AND (run_at, id) >= (heads.run_at, heads.id)
            ORDER BY run_at, id LIMIT 1) AS due
        FROM heads WHERE heads.priority IS NOT NULL) AS found
    ORDER BY found.due NULLS LAST, found.priority DESC LIMIT 1)

-- fragment: picked_longest_due
SELECT id AS chosen FROM ol.job
    WHERE ol.in_line AND priority = (SELECT priority FROM longest)
        AND (run_at, id) >= ((SELECT run_at FROM longest), (SELECT id FROM longest))
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND (q.paused OR q.limited))
        AND (crashes = 0 OR crashes < max_crashes - 1 OR (id = (
            SELECT id FROM ol.job
            WHERE ol.in_line AND crashes > 0 AND crashes >= max_crashes - 1
                AND priority = (SELECT priority FROM longest)
            ORDER BY run_at, id LIMIT 1) AND ol.boolean(:last_life)))
    ORDER BY priority DESC, run_at, id
    LIMIT :limit

-- name: claim_longest_due
-- Take ready jobs of the priority whose first job has been due longest. Every tenth claim of a busy
-- queue is this one, so that no priority starves.
-- postgres: as in claim
WITH RECURSIVE ol.priority_heads,
picked AS MATERIALIZED (ol.picked_longest_due FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: as in claim
WITH RECURSIVE ol.priority_heads
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (ol.picked_longest_due)
RETURNING ol.claim_columns

-- name: succeed_and_claim_on
-- Both in one statement, for a busy worker: it finishes and claims, and sends little else for long.
-- Each row is a claim, with the number of accepted successes last; without a claim it is that alone.
-- postgres only: an update can be part of a query, and one statement costs less than a pipeline of
-- two. Rows to finish are locked before any is claimed: a session that waits for a row holds no other.
WITH done AS (ol.succeeding AND ol.any_fence RETURNING 1),
picked AS MATERIALIZED (ol.picked_on FOR UPDATE SKIP LOCKED),
taken AS (
    UPDATE ol.job AS j SET ol.taken
    FROM picked WHERE j.id = picked.chosen AND (SELECT count(*) FROM done) >= 0
    RETURNING ol.claim_columns)
SELECT taken.*, (SELECT count(*) FROM done) FROM (SELECT 1) AS one LEFT JOIN taken ON true
