-- fragment: lane_head
j.state = 'ready' AND j.lane IS NOT NULL AND j.queue = :queue

-- Lanes with ready jobs, found by hopping along their index: from the cursor on, and round. On PostgreSQL
-- the index is read backward, so that each lane is found by its last job: dead entries of claimed jobs,
-- which another session's old snapshot keeps, come before it.
-- fragment: hops
ahead (lane, n) AS (
    SELECT (SELECT j.lane FROM ol.job AS j WHERE ol.lane_head AND j.lane >= :lane
        ORDER BY j.lane LIMIT 1), 1
    UNION ALL
    SELECT (SELECT j.lane FROM ol.job AS j WHERE ol.lane_head AND j.lane > ahead.lane
        ORDER BY j.lane LIMIT 1), ahead.n + 1
    FROM ahead WHERE ahead.lane IS NOT NULL AND ahead.n <= :lanes),
behind (lane, n) AS (
    SELECT (SELECT j.lane FROM ol.job AS j WHERE ol.lane_head AND j.lane < :lane
        ORDER BY j.lane LIMIT 1), 1
    UNION ALL
    SELECT (SELECT j.lane FROM ol.job AS j WHERE ol.lane_head AND j.lane > behind.lane
        AND j.lane < :lane ORDER BY j.lane LIMIT 1), behind.n + 1
    FROM behind WHERE behind.lane IS NOT NULL AND behind.n <= :lanes),
turns (lane, n) AS (
    SELECT lane, n FROM (
        SELECT lane, n FROM ahead WHERE lane IS NOT NULL
        UNION ALL
        SELECT lane, 1000 + n FROM behind WHERE lane IS NOT NULL) AS found
    LIMIT :lanes),
chosen (lane, n) AS (
    SELECT lane, n FROM turns
    UNION ALL
    SELECT t.lane, 10000 + t.place FROM ol.rows(lane text, place integer)
    WHERE t.lane NOT IN (SELECT lane FROM turns))

-- The queue, locked: exclusively if it has limits of its own, else shared, so that a change of limits
-- waits for claims.
-- fragment: held_queue
held AS MATERIALIZED (
    SELECT q.running IS NOT NULL OR q.rate IS NOT NULL AS alone, q.ordered,
        q.rate, q.lane_rate, q.burst, CAST(q.weights AS text) AS weights, q.lane_batch,
        CASE WHEN q.running IS NOT NULL OR q.rate IS NOT NULL
            THEN pg_try_advisory_xact_lock(ol.lane_lock(:queue, ''))
            ELSE pg_try_advisory_xact_lock_shared(ol.lane_lock(:queue, '')) END AS got
    FROM ol.queue AS q WHERE q.name = :queue AND q.limited AND NOT q.paused)

-- fragment: lane_got
held.got AND pg_try_advisory_xact_lock(
        ol.lane_lock(:queue, chosen.lane))

-- name: latest_lane
-- The lane of the last job that started in a queue: turns of other workers are near there.
SELECT r.lane FROM ol.job AS r
WHERE r.state = 'running' AND r.lane IS NOT NULL AND r.queue = :queue
ORDER BY r.started_at DESC LIMIT 1

-- name: lock_lanes
-- The lanes of a queue whose turn it is, and those with slots just freed, locked against other claims until
-- this one commits. Running jobs are counted afterwards, by a statement that sees what the last owner of
-- the lock committed.
-- postgres: transaction locks, tried without waiting
WITH RECURSIVE ol.held_queue,
ol.hops
SELECT chosen.lane, chosen.n, ol.lane_got, held.alone, held.ordered, held.rate, held.lane_rate,
    held.burst, held.weights, held.lane_batch
FROM held CROSS JOIN chosen
-- sqlite: one writer at a time
WITH RECURSIVE ol.hops
SELECT chosen.lane, chosen.n, 1, 1, q.ordered, q.rate, q.lane_rate, q.burst, q.weights,
    q.lane_batch
FROM ol.queue AS q CROSS JOIN chosen WHERE q.name = :queue AND q.limited AND NOT q.paused

-- name: lock_even_lanes
-- The same in one row, for claim_even_lanes in the same round trip: the lanes got, in the order of their
-- turns, and whether each is in turn (one at the cursor has had its turn: it is last, and not in turn if
-- there are more lanes); how many there were, how many of these were in turn and which was the last of
-- them; and the queue.
-- postgres only: on SQLite there is no round trip to save. A setting that ends with the transaction
-- tells the next statement which lanes were got: to try again there would lock lanes after its snapshot.
WITH RECURSIVE ol.held_queue,
ol.hops,
locked AS MATERIALIZED (
    SELECT chosen.lane, chosen.n, ol.lane_got AS got, chosen.n < 10000
        AND NOT (chosen.lane = :lane AND (SELECT count(*) FROM turns) >= :lanes) AS in_turn
    FROM held CROSS JOIN chosen)
SELECT set_config('outlast.locked_lanes', COALESCE((
        SELECT CAST(json_agg(json_build_array(l.lane, l.in_turn)
            ORDER BY NOT l.in_turn, l.lane = :lane, l.n) AS text)
        FROM locked AS l WHERE l.got), '[]'), true),
    (SELECT count(*) FROM locked), (SELECT count(*) FROM turns),
    (SELECT lane FROM turns ORDER BY n DESC LIMIT 1),
    held.alone, held.ordered, held.rate, held.lane_rate, held.burst, held.weights, held.lane_batch
FROM held

-- Closed by slow_down. An end that is further away than it ever was belongs to a clock that has since
-- stepped back: the lane is open.
-- fragment: lane_closed
(s.closed_for IS NOT NULL AND s.filled_at > ol.now() AND s.filled_at <= ol.later(s.closed_for + 1))

-- A bucket that was filled in the future: the clock has stepped back. It has a token, and the claim
-- that takes it fills the bucket now.
-- fragment: filled_later
s.filled_at > ol.later(1)

-- fragment: fill_seconds
ol.greatest(0.0, ol.epoch(ol.now()) - ol.epoch(s.filled_at))

-- Tokens in a bucket now. One without a row is full; one that is closed has none.
-- fragment: lane_tokens
CASE WHEN ol.lane_closed THEN 0.0 WHEN ol.filled_later THEN 1.0
        ELSE ol.least(ol.lane_burst,
            COALESCE(s.tokens + ol.fill_seconds * q.lane_rate, ol.lane_burst)) END

-- fragment: lane_burst
COALESCE(q.burst, ol.greatest(1.0, q.lane_rate))

-- fragment: queue_tokens
CASE WHEN ol.filled_later THEN 1.0
        ELSE ol.least(ol.queue_burst,
            COALESCE(s.tokens + ol.fill_seconds * q.rate, ol.queue_burst)) END

-- fragment: queue_burst
COALESCE(q.burst, ol.greatest(1.0, q.rate))

-- How many more jobs of the queue may run; counted only where there is a limit.
-- fragment: queue_room
CASE WHEN q.running IS NULL THEN :limit
        ELSE ol.least(:limit, q.running - (SELECT count(*) FROM ol.job AS r
            WHERE r.state = 'running' AND r.lane IS NOT NULL AND r.queue = :queue)) END

-- fragment: lane_room
CASE WHEN q.lane_running IS NULL THEN t.share
        ELSE ol.least(t.share, q.lane_running - (SELECT count(*) FROM ol.job AS r
            WHERE r.state = 'running' AND r.lane IS NOT NULL AND r.queue = :queue
                AND r.lane = t.lane)) END

-- The limits, read after the locks were acquired. A queue that has got a limit of its own since then is
-- locked exclusively by the next claim.
-- fragment: claim_limits
SELECT q.*, ol.greatest(0, ol.least(ol.queue_room, CASE
            WHEN q.rate IS NULL THEN :limit
            ELSE ol.whole(ol.queue_tokens) END)) AS room
    FROM ol.queue AS q LEFT JOIN ol.lane AS s ON s.queue = q.name AND s.lane = ''
    WHERE q.name = :queue AND q.limited AND NOT q.paused
        AND (ol.boolean(:alone) OR (q.running IS NULL AND q.rate IS NULL))

-- The share of each lane, in the order of their turns.
-- fragment: given_shares
-- postgres: an object of json, unlike one of jsonb, keeps its order
shares AS MATERIALIZED (
    SELECT e.key AS lane, CAST(e.value AS integer) AS share, e.place
    FROM json_each_text(CAST(:shares AS json)) WITH ORDINALITY AS e (key, value, place))
-- sqlite: keys and values need no json_extract
shares AS MATERIALIZED (
    SELECT e.key AS lane, e.value AS share, e.id AS place FROM json_each(:shares) AS e)

-- In the order of their turns: a join with many buckets may return another order.
-- fragment: claim_takes
SELECT t.lane, q.ordered, q.on_dead, ol.greatest(0, ol.least(ol.lane_room, CASE
            WHEN ol.lane_closed THEN 0
            WHEN q.lane_rate IS NULL THEN t.share
            ELSE ol.whole(ol.lane_tokens) END)) AS take,
        CASE WHEN q.lane_rate IS NULL THEN t.share
            ELSE ol.least(t.share, ol.whole(ol.lane_tokens)) END AS longest_run
    FROM shares AS t CROSS JOIN limits AS q
    LEFT JOIN ol.lane AS s ON s.queue = :queue AND s.lane = t.lane
    WHERE q.room > 0 AND NOT COALESCE(s.paused, false) AND NOT (COALESCE(q.lane_by, '') = 'tenant'
        AND EXISTS (SELECT 1 FROM ol.lane AS p WHERE p.queue = '' AND p.lane = t.lane AND p.paused))
    ORDER BY t.place

-- One more lost worker would end such a job: at most one of them goes to one worker.
-- fragment: spared
(crashes = 0 OR crashes < max_crashes - 1 OR (ol.boolean(:last_life) AND id = (
            SELECT id FROM ol.job
            WHERE state = 'ready' AND queue = :queue AND crashes > 0 AND crashes >= max_crashes - 1
                AND lane IN (SELECT lane FROM shares) AND ol.startable_of_tenant
            ORDER BY priority DESC, run_at, id LIMIT 1)))

-- A range of one lane, and an order that begins with it: with an equation the planner might use the index
-- of all ready jobs, and skip those of other lanes.
-- fragment: next_in_lane
state = 'ready' AND lane IS NOT NULL AND queue = :queue
                AND lane >= takes.lane AND lane <= takes.lane
                AND ol.startable_of_tenant AND ol.spared

-- fragment: picked_in_lanes
-- postgres: locked where they are picked, lane by lane. The constant LIMIT tells the planner that few
-- rows are wanted; by the limits alone it would read the whole table.
SELECT few.chosen FROM (
        SELECT near.chosen FROM takes
        CROSS JOIN LATERAL (
            SELECT id AS chosen FROM ol.job
            WHERE ol.next_in_lane
            ORDER BY lane DESC, priority DESC, run_at, id
            LIMIT takes.take
            FOR UPDATE SKIP LOCKED) AS near
        WHERE takes.take > 0 AND NOT takes.ordered
        LIMIT 1000) AS few
    LIMIT COALESCE((SELECT room FROM limits), 0)
-- sqlite: no LATERAL, and no LIMIT that depends on a row: the next jobs of a lane are listed, and as many of
-- them taken as its share allows. (Rows by rowid: an id would be looked up once more.)
SELECT near.value FROM takes CROSS JOIN json_each((
        SELECT json_group_array(number) FROM (
            SELECT rowid AS number FROM ol.job
            WHERE ol.next_in_lane
            ORDER BY lane, priority DESC, run_at, id
            LIMIT (SELECT max(take) FROM takes)))) AS near
    WHERE takes.take > 0 AND NOT takes.ordered AND near.key < takes.take
    LIMIT COALESCE((SELECT room FROM limits), 0)

-- name: claim_lanes
-- Take the next ready jobs of locked lanes, as many of each as its share, its limit and its tokens allow,
-- and no more than the queue has room for.
-- postgres: locked in a CTE, as in claim
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes),
picked AS MATERIALIZED (ol.picked_in_lanes)
ol.take_picked
-- sqlite: one writer at a time
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes)
UPDATE ol.job AS j SET ol.taken
WHERE j.rowid IN (ol.picked_in_lanes)
RETURNING ol.claim_columns

-- name: claim_even_lanes
-- The same of the lanes that lock_even_lanes has locked, for a queue whose lanes have neither weights,
-- rates nor an order, and that has no limit of its own. Each lane has the same number of turns, and the
-- first ones one more; if there are more lanes than jobs wanted, each has one.
-- postgres only: as lock_even_lanes
WITH limits AS MATERIALIZED (ol.claim_limits
        AND NOT q.ordered AND q.weights IS NULL AND q.lane_rate IS NULL),
locked AS (
    SELECT e.value ->> 0 AS lane, CAST(e.value ->> 1 AS boolean) AS in_turn, e.place
    FROM json_array_elements(
        CAST(NULLIF(current_setting('outlast.locked_lanes', true), '') AS json))
        WITH ORDINALITY AS e (value, place)),
shares AS MATERIALIZED (
    SELECT l.lane, CAST(GREATEST(1, :limit / l.number
        + CASE WHEN l.turn <= :limit % l.number THEN 1 ELSE 0 END) AS integer) AS share, l.place
    FROM (SELECT lane, place, row_number() OVER (PARTITION BY in_turn ORDER BY place) AS turn,
        count(*) OVER (PARTITION BY in_turn) AS number FROM locked) AS l),
takes AS MATERIALIZED (ol.claim_takes),
picked AS MATERIALIZED (ol.picked_in_lanes)
ol.take_picked

-- fragment: in_lane
state = 'ready' AND lane IS NOT NULL AND queue = :queue AND ol.startable_of_tenant

-- fragment: of_taken_lane
-- postgres: the equation finds the position in the index; the range repeats it, and makes the planner expect
-- few rows of a lane, so that it does not use the index of all ready jobs
lane = takes.lane AND lane >= takes.lane AND lane <= takes.lane
-- sqlite: would use only the range, and read the whole lane
lane = takes.lane

-- fragment: of_head_lane
-- postgres: as in of_taken_lane
lane = heads.lane AND lane >= heads.lane AND lane <= heads.lane
-- sqlite: as in of_taken_lane
lane = heads.lane

-- Priorities with jobs that can start of each lane, found by hopping as in claim_longest_due.
-- fragment: lane_priorities
heads (lane, priority) AS (
    SELECT takes.lane, (SELECT priority FROM ol.job WHERE ol.in_lane
            AND ol.of_taken_lane
        ORDER BY priority DESC LIMIT 1)
    FROM takes WHERE takes.take > 0 AND NOT takes.ordered
    UNION ALL
    SELECT heads.lane, (SELECT priority FROM ol.job WHERE ol.in_lane
            AND ol.of_head_lane
            AND priority < heads.priority
        ORDER BY priority DESC LIMIT 1)
    FROM heads WHERE heads.priority IS NOT NULL),
longest AS MATERIALIZED (
    SELECT ranked.lane, ranked.priority FROM (
        SELECT found.lane, found.priority, row_number() OVER (
            PARTITION BY found.lane ORDER BY found.due NULLS LAST, found.priority DESC) AS place
        FROM (
            SELECT heads.lane, heads.priority, (
                SELECT run_at FROM ol.job WHERE ol.in_lane
                    AND ol.of_head_lane
                    AND priority = heads.priority
                ORDER BY run_at, id LIMIT 1) AS due
            FROM heads WHERE heads.priority IS NOT NULL) AS found) AS ranked
    WHERE ranked.place = 1)

-- fragment: longest_due_in_lane
ol.in_lane AND ol.of_taken_lane
                AND priority = (SELECT l.priority FROM longest AS l WHERE l.lane = takes.lane)
                AND ol.spared

-- name: claim_lanes_longest_due
-- The same, of each lane those of the priority whose first job has been due longest, as in
-- claim_longest_due.
-- postgres: as in claim_lanes
WITH RECURSIVE limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes),
ol.lane_priorities,
picked AS MATERIALIZED (
    SELECT few.chosen FROM (
        SELECT near.chosen FROM takes
        CROSS JOIN LATERAL (
            SELECT id AS chosen FROM ol.job
            WHERE ol.longest_due_in_lane
            ORDER BY run_at, id
            LIMIT takes.take
            FOR UPDATE SKIP LOCKED) AS near
        WHERE takes.take > 0 AND NOT takes.ordered
        LIMIT 1000) AS few
    LIMIT COALESCE((SELECT room FROM limits), 0))
ol.take_picked
-- sqlite: as in claim_lanes
WITH RECURSIVE limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes),
ol.lane_priorities
UPDATE ol.job AS j SET ol.taken
WHERE j.rowid IN (
    SELECT near.value FROM takes CROSS JOIN json_each((
        SELECT json_group_array(number) FROM (
            SELECT rowid AS number FROM ol.job
            WHERE ol.longest_due_in_lane
            ORDER BY run_at, id
            LIMIT (SELECT max(take) FROM takes)))) AS near
    WHERE takes.take > 0 AND NOT takes.ordered AND near.key < takes.take
    LIMIT COALESCE((SELECT room FROM limits), 0))
RETURNING ol.claim_columns

-- fragment: lane_order
-- postgres: as the index has them
DESC
-- sqlite: as the index has them
ASC

-- The head of an ordered lane: a begun job that will continue, else the first in line. A dead job may
-- block the lane.
-- fragment: ordered_head
COALESCE(
            (SELECT b.id FROM ol.job AS b WHERE b.lane IS NOT NULL AND b.fence > 0
                AND b.state IN ('scheduled', 'ready') AND b.wait_name IS NULL
                AND b.queue = :queue AND b.lane = takes.lane
            ORDER BY b.id LIMIT 1),
            (SELECT b.id FROM ol.job AS b WHERE b.state = 'ready' AND b.lane IS NOT NULL
                AND b.queue = :queue AND b.lane >= takes.lane AND b.lane <= takes.lane
            ORDER BY b.lane ol.lane_order, b.priority DESC, b.run_at, b.id LIMIT 1))

-- fragment: blocked_by_dead
takes.on_dead = 'block' AND EXISTS (SELECT 1 FROM ol.job AS d
                WHERE d.state = 'dead' AND d.lane IS NOT NULL AND d.queue = :queue
                    AND d.lane = takes.lane)

-- name: claim_ordered_lanes
-- Take the head of each locked lane, if it is ready. A head that has failed and waits for its next attempt
-- holds its lane, and so does one that another transaction has locked.
-- postgres: the head is found first and locked then: SKIP LOCKED would go on to the next in line
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes),
picked AS MATERIALIZED (
    SELECT few.chosen FROM (
        SELECT near.chosen FROM takes
        CROSS JOIN LATERAL (
            SELECT id AS chosen FROM ol.job
            WHERE id = ol.ordered_head AND state || '' = 'ready'
                AND ol.startable_of_tenant AND ol.spared AND NOT (ol.blocked_by_dead)
            FOR UPDATE SKIP LOCKED) AS near
        WHERE takes.take > 0 AND takes.ordered
        LIMIT 1000) AS few
    LIMIT COALESCE((SELECT room FROM limits), 0))
ol.take_picked
-- sqlite: one writer at a time
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes)
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (
    SELECT near.id FROM takes CROSS JOIN ol.job AS near
    WHERE takes.take > 0 AND takes.ordered AND near.id = ol.ordered_head
        AND NOT (ol.blocked_by_dead) AND near.id IN (
            SELECT id FROM ol.job WHERE id = near.id AND state || '' = 'ready'
                AND ol.startable_of_tenant AND ol.spared)
    LIMIT COALESCE((SELECT room FROM limits), 0))
RETURNING ol.claim_columns

-- The jobs of a lane that have been tried and will continue: the first of them is taken alone.
-- fragment: lane_begun
b.lane IS NOT NULL AND b.fence > 0 AND b.state IN ('scheduled', 'ready') AND b.wait_name IS NULL
                AND b.queue = :queue AND b.lane = takes.lane

-- (Arguments kept by reference are fetched first, so the job could be overtaken: it is taken alone, too.)
-- fragment: inline_args
substr(CAST(args AS text), 1, 1) <> '['

-- fragment: ready_in_lane
state = 'ready' AND lane IS NOT NULL AND queue = :queue
                        AND lane >= takes.lane AND lane <= takes.lane

-- name: claim_lane_runs
-- Take the next jobs of each locked ordered lane without running jobs, up to its share, its tokens and
-- `:run`: one worker keeps their order. A job that has been tried holds its lane, and is taken alone. The
-- first one that cannot be taken ends the run.
-- postgres: candidates are found first and locked then, and a gap ends the run: SKIP LOCKED would continue
-- with the next in line. They are read along the lanes' index from their first one on, and those of other
-- lanes dropped then: with an end to the range, and without statistics, the planner would use the index of
-- all ready jobs, and sort them for each lane. Each is locked by its id, one by one: with an ORDER BY, the
-- hot path, whose plans never sort, would read all jobs in the order of their ids.
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (ol.claim_takes),
line AS MATERIALIZED (
    SELECT takes.lane AS of_lane, t.place AS turn, near.id AS candidate, near.place
    FROM takes JOIN shares AS t ON t.lane = takes.lane
    CROSS JOIN LATERAL (
        SELECT few.id, few.place FROM (
            (SELECT b.id, 1 AS place FROM ol.job AS b
            WHERE ol.lane_begun ORDER BY b.created_at, b.id LIMIT 1)
            UNION ALL
            (SELECT id, row_number() OVER (ORDER BY priority DESC, run_at, id)
            FROM (SELECT id, queue, lane, priority, run_at FROM ol.job
                WHERE state = 'ready' AND lane IS NOT NULL AND (queue, lane) <= (:queue, takes.lane)
                ORDER BY queue DESC, lane DESC, priority DESC, run_at, id LIMIT LEAST(takes.longest_run, :run)) AS ready
            WHERE queue = :queue AND lane = takes.lane AND NOT EXISTS (SELECT 1 FROM ol.job AS b WHERE ol.lane_begun))) AS few
        LIMIT 1000) AS near
    WHERE takes.take > 0 AND takes.ordered AND NOT (ol.blocked_by_dead)),
held AS MATERIALIZED (
    SELECT of_lane, turn, candidate, place, got, inline
    FROM line LEFT JOIN LATERAL (
        SELECT id AS got, ol.inline_args AS inline FROM ol.job
        WHERE id = line.candidate AND state || '' = 'ready'
            AND ol.startable_of_tenant AND ol.spared
        FOR UPDATE SKIP LOCKED) AS locked ON true),
runs AS MATERIALIZED (
    SELECT turn, candidate, place, first_value(inline) OVER lane_line AS first_inline,
        bool_and(got IS NOT NULL AND (place = 1 OR inline)) OVER lane_line AS unbroken
    FROM held WINDOW lane_line AS (PARTITION BY of_lane ORDER BY place)),
picked AS MATERIALIZED (
    SELECT candidate AS chosen FROM runs WHERE unbroken AND (place = 1 OR first_inline)
    ORDER BY turn, place LIMIT COALESCE((SELECT room FROM limits), 0))
ol.take_picked
-- sqlite: one writer at a time, and no LATERAL: of each lane the next ones are looked up by id
WITH limits AS MATERIALIZED (ol.claim_limits),
ol.given_shares,
takes AS MATERIALIZED (
    SELECT some.*, t.place AS turn FROM (ol.claim_takes) AS some
    JOIN shares AS t ON t.lane = some.lane)
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (
    SELECT near.id FROM takes CROSS JOIN ol.job AS near
    WHERE takes.take > 0 AND takes.ordered AND NOT (ol.blocked_by_dead) AND near.id IN (
        SELECT id FROM ol.job WHERE state || '' = 'ready' AND ol.startable_of_tenant AND ol.spared
            AND id = (SELECT b.id FROM ol.job AS b WHERE ol.lane_begun
                ORDER BY b.created_at, b.id LIMIT 1)
        UNION ALL
        SELECT id FROM (
            SELECT id, place, first_value(inline) OVER (ORDER BY place) AS first_inline,
                min(fits AND (place = 1 OR inline)) OVER (ORDER BY place) AS unbroken
            FROM (SELECT id, row_number() OVER (ORDER BY priority DESC, run_at, id) AS place,
                    ol.startable_of_tenant AS fits, ol.inline_args AS inline
                FROM (SELECT id, priority, run_at, args, expires_at, task, tenant FROM ol.job
                    WHERE ol.ready_in_lane
                    ORDER BY lane, priority DESC, run_at, id LIMIT :run)))
        WHERE unbroken AND (place = 1 OR first_inline) AND place <= takes.longest_run
            AND NOT EXISTS (SELECT 1 FROM ol.job AS b WHERE ol.lane_begun))
    ORDER BY takes.turn, near.priority DESC, near.run_at, near.id
    LIMIT COALESCE((SELECT room FROM limits), 0))
RETURNING ol.claim_columns

-- name: spend_tokens
-- Take tokens from the buckets of lanes, and of the whole queue (''), for claimed jobs. A lane that was
-- closed meanwhile stays closed.
INSERT INTO ol.lane AS s (queue, lane, tokens, filled_at)
SELECT :queue, t.lane, CASE WHEN t.lane = '' THEN ol.queue_tokens ELSE ol.lane_tokens END - t.spent,
    ol.now()
FROM ol.rows(lane text, spent integer) JOIN ol.queue AS q ON q.name = :queue
LEFT JOIN ol.lane AS s ON s.queue = :queue AND s.lane = t.lane
WHERE CASE WHEN t.lane = '' THEN q.rate ELSE q.lane_rate END IS NOT NULL
ON CONFLICT (queue, lane) DO UPDATE SET tokens = excluded.tokens, filled_at = excluded.filled_at,
    closed_for = NULL WHERE NOT ol.lane_closed

-- name: return_tokens
-- Return the tokens of jobs that were released unspent. A bucket without a row is full.
UPDATE ol.lane AS b SET tokens = b.tokens + t.spent
FROM ol.rows(queue text, lane text, spent integer)
WHERE b.queue = t.queue AND b.lane = t.lane AND b.tokens IS NOT NULL

-- name: adopt_jobs
-- Give lanes to jobs of a limited queue that have none: they were enqueued before it had limits.
-- postgres: SKIP LOCKED, as in promote_due
WITH near AS MATERIALIZED (
    SELECT id, lane FROM ol.job WHERE state = 'ready' AND queue = :queue
    ORDER BY priority DESC, run_at, id LIMIT :reach),
found AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job WHERE id IN (SELECT id FROM near WHERE lane IS NULL)
        AND state || '' = 'ready'
    FOR UPDATE SKIP LOCKED)
UPDATE ol.job AS j SET lane = CASE q.lane_by WHEN 'tenant' THEN j.tenant ELSE 'default' END
FROM found, ol.queue AS q WHERE j.id = found.chosen AND q.name = :queue AND q.limited
RETURNING 1
-- sqlite: one writer at a time
UPDATE ol.job SET lane = (SELECT CASE q.lane_by WHEN 'tenant' THEN ol.job.tenant ELSE 'default' END
    FROM ol.queue AS q WHERE q.name = :queue)
WHERE EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND q.limited) AND id IN (
    SELECT id FROM (
        SELECT id, lane FROM ol.job WHERE state = 'ready' AND queue = :queue
        ORDER BY priority DESC, run_at, id LIMIT :reach)
    WHERE lane IS NULL)
RETURNING 1

-- name: adopt_running
-- Give lanes to running jobs, so that they are counted, when a queue gets its first limit.
-- postgres: locked in the order in which finishes and renewals lock rows, so that none deadlocks
WITH held AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job WHERE state = 'running' AND queue = :queue AND lane IS NULL
    ORDER BY id FOR UPDATE)
UPDATE ol.job SET lane = COALESCE((SELECT CASE q.lane_by WHEN 'tenant' THEN tenant END
    FROM ol.queue AS q WHERE q.name = :queue), 'default')
FROM held WHERE id = held.chosen
-- sqlite: one writer at a time
UPDATE ol.job SET lane = COALESCE((SELECT CASE q.lane_by WHEN 'tenant' THEN tenant END
    FROM ol.queue AS q WHERE q.name = :queue), 'default')
WHERE state = 'running' AND queue = :queue AND lane IS NULL

-- fragment: closed_longer
ol.lane_closed AND s.filled_at > excluded.filled_at

-- fragment: close_lane
tokens = 0,
    filled_at = CASE WHEN ol.closed_longer THEN s.filled_at ELSE excluded.filled_at END,
    closed_for = CASE WHEN ol.closed_longer THEN s.closed_for ELSE excluded.closed_for END

-- fragment: claim_in_lane
j.id = ol.id(:job) AND j.fence = :fence AND j.worker IN (:worker, :offered_by)
    AND j.state || '' = 'running' AND j.lane IS NOT NULL

-- name: slow_down
-- Close the lane of a job for a while, if the claim still holds: its bucket is empty, and refills from
-- then on. Of two such requests the longer one counts.
-- postgres: the job's row is locked, as in keep_step
INSERT INTO ol.lane AS s (queue, lane, tokens, filled_at, closed_for)
SELECT j.queue, j.lane, 0, ol.later(CAST(:seconds AS double precision)),
    CAST(:seconds AS double precision)
FROM ol.job AS j WHERE ol.claim_in_lane
FOR NO KEY UPDATE
ON CONFLICT (queue, lane) DO UPDATE SET ol.close_lane
RETURNING ol.epoch(filled_at)
-- sqlite: one writer at a time
INSERT INTO ol.lane AS s (queue, lane, tokens, filled_at, closed_for)
SELECT j.queue, j.lane, 0, ol.later(:seconds), :seconds
FROM ol.job AS j WHERE ol.claim_in_lane
ON CONFLICT (queue, lane) DO UPDATE SET ol.close_lane
RETURNING ol.epoch(filled_at)

-- name: pause_lane
-- Stop the claiming of a lane, or (queue '') of a tenant's lanes; no row if it is paused.
INSERT INTO ol.lane AS b (queue, lane, paused) VALUES (:queue, :lane, true)
ON CONFLICT (queue, lane) DO UPDATE SET paused = true WHERE NOT b.paused
RETURNING lane

-- name: resume_lane
-- Claim from a paused lane, or (queue '') from a tenant's lanes again; no row if it is not paused. (No
-- insert: the row of a resumed lane is pruned.)
UPDATE ol.lane SET paused = false WHERE queue = :queue AND lane = :lane AND paused
RETURNING lane

-- name: prune_lanes
-- Remove rows that equal the defaults: neither paused nor closed, with a full bucket, or in a queue without
-- rates. (Filled a while ago: a row that a claim changes meanwhile is checked again.)
DELETE FROM ol.lane
WHERE NOT paused AND (filled_at IS NULL OR filled_at <= ol.ago(1))
    AND (queue, lane) IN (
        SELECT s.queue, s.lane FROM ol.lane AS s LEFT JOIN ol.queue AS q ON q.name = s.queue
        WHERE NOT s.paused AND (s.filled_at IS NULL OR s.filled_at <= ol.ago(1))
            AND CASE WHEN s.lane = '' THEN q.rate IS NULL OR ol.queue_tokens >= ol.queue_burst
                ELSE q.lane_rate IS NULL OR ol.lane_tokens >= ol.lane_burst END
        LIMIT :limit)
RETURNING lane

-- name: probe_lanes
-- Lanes with ready jobs of one task, among the next of its queue, in no order: any may have room.
SELECT lane FROM (
    SELECT DISTINCT lane FROM (
        SELECT lane, task FROM ol.job WHERE state = 'ready' AND queue = :queue
        ORDER BY priority DESC, run_at, id LIMIT :reach) AS near
    WHERE task = :task AND lane IS NOT NULL) AS found
ORDER BY random() LIMIT :lanes

-- name: limited_queues
-- Queues that are claimed by lanes.
SELECT name FROM ol.queue WHERE limited

-- name: lane_slots
-- The state of one lane: how many jobs run in it and in the whole queue, whether it is paused, whether its
-- tenant is, when it opens, how many tokens it and the queue have, the job that holds its order and the
-- one that blocks it.
SELECT (SELECT count(*) FROM ol.job AS r WHERE r.state = 'running' AND r.lane IS NOT NULL
        AND r.queue = :queue AND r.lane = :lane),
    (SELECT count(*) FROM ol.job AS r WHERE r.state = 'running' AND r.lane IS NOT NULL
        AND r.queue = :queue),
    COALESCE(s.paused, false),
    EXISTS (SELECT 1 FROM ol.lane AS p WHERE p.queue = '' AND p.lane = :lane AND p.paused
        AND q.lane_by = 'tenant'),
    CASE WHEN ol.lane_closed THEN ol.epoch(s.filled_at) END,
    CASE WHEN q.lane_rate IS NULL THEN NULL ELSE ol.lane_tokens END,
    CASE WHEN q.rate IS NULL THEN NULL ELSE (SELECT ol.queue_tokens FROM (SELECT 1) AS bucket
        LEFT JOIN ol.lane AS s ON s.queue = :queue AND s.lane = '') END,
    (SELECT CAST(b.id AS text) FROM ol.job AS b WHERE b.lane IS NOT NULL AND b.fence > 0
        AND b.state IN ('scheduled', 'ready') AND b.wait_name IS NULL AND b.queue = :queue
        AND b.lane = :lane AND q.ordered
    ORDER BY b.id LIMIT 1),
    (SELECT CAST(d.id AS text) FROM ol.job AS d WHERE d.state = 'dead' AND d.lane IS NOT NULL
        AND d.queue = :queue AND d.lane = :lane AND q.on_dead = 'block' LIMIT 1)
FROM ol.queue AS q LEFT JOIN ol.lane AS s ON s.queue = q.name AND s.lane = :lane
WHERE q.name = :queue AND q.limited

-- name: lane_running
-- The running jobs of a lane that the caller may see, the longest-running first.
SELECT CAST(id AS text) FROM ol.job AS j WHERE j.state = 'running' AND j.lane IS NOT NULL
    AND j.queue = :queue AND j.lane = :lane AND ol.in_reach ORDER BY j.started_at, j.id
LIMIT :limit

-- name: deepest_lanes
-- The lanes of a queue with the most ready jobs: their number, since when the oldest is due, running jobs.
SELECT g.lane, g.ready, ol.epoch(ol.now()) - g.oldest,
    (SELECT count(*) FROM ol.job AS r WHERE r.state = 'running' AND r.lane IS NOT NULL
        AND r.queue = :queue AND r.lane = g.lane),
    COALESCE((SELECT s.paused FROM ol.lane AS s WHERE s.queue = :queue AND s.lane = g.lane), false)
FROM (SELECT j.lane AS lane, count(*) AS ready, min(ol.epoch(j.run_at)) AS oldest
    FROM ol.job AS j WHERE ol.lane_head GROUP BY j.lane ORDER BY count(*) DESC, j.lane LIMIT :limit) AS g
ORDER BY g.ready DESC, g.lane
