-- The archive: table `past`, partitioned by the day (UTC) on which a job ended.
-- postgres only: SQLite has one file, no partitions, and one job table that stays fast (docs/decisions)

-- A look-up by id is bounded in time where the id shows when its job was created: other partitions are
-- pruned by the planner.
-- fragment: in_span
j.finished_at >= ol.moment(:low) AND j.finished_at < ol.moment(:high)

-- The whole row, in one order; a test compares it with both tables.
-- fragment: whole_row
id, tenant, queue, lane, task, args, state, priority, run_at, attempt, failures, crashes, max_attempts,
    max_crashes, fence, worker, lease_until, cancelling, timeout, retry, key, unique_mode, expires_at,
    result, error, trace, created_at, started_at, finished_at, flow, team, needs, waits_for, quorum,
    tied, hooks, unlinked, wait_name, wait_until, awaited

-- Nothing else may refer to a job that moves: no key, no flow, no dependent, no blob, no row of another
-- table. Its queue keeps it as long as others do.
-- fragment: movable
j.state || '' = 'succeeded' AND j.key IS NULL AND j.flow IS NULL AND j.team IS NULL AND NOT j.tied
    AND NOT j.awaited AND j.hooks IS NULL AND COALESCE(ol.references) IS NULL
    AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = j.queue AND q.keep < :keep)
    AND NOT EXISTS (SELECT 1 FROM ol.edge AS e WHERE e.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.edge AS e WHERE e.follower = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.attempt AS a WHERE a.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.event AS e WHERE e.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.step AS s WHERE s.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.wait AS w WHERE w.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.wait AS w WHERE w.awaits = j.id AND w.ended_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM ol.signal AS s WHERE s.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.signal_link AS l WHERE l.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM ol.stream AS o WHERE o.job = j.id)

-- fragment: day_of
CAST(finished_at AT TIME ZONE 'UTC' AS date)

-- Subtract the rows that a statement removes from the archive's counts.
-- fragment: uncounted
uncounted AS (
    UPDATE ol.past_count AS c SET number = c.number - g.number
    FROM (SELECT ol.day_of AS day, tenant, queue, task, count(*) AS number FROM gone
        GROUP BY 1, 2, 3, 4) AS g
    WHERE c.day = g.day AND c.tenant = g.tenant AND c.queue = g.queue AND c.task = g.task)

-- name: ended_for_archive
-- A page of ended jobs in the order of their ends, after a cursor: when each ended, and whether it may
-- move to the archive. Jobs that stay are read once, not in every pass.
SELECT CAST(j.id AS text), ol.epoch(j.finished_at), ol.movable
FROM (SELECT * FROM ol.job AS o WHERE o.state IN ('succeeded', 'cancelled')
        AND o.finished_at >= ol.moment(:since) AND o.finished_at >= ol.ago(:keep)
        AND o.finished_at < ol.ago(:after)
        AND (o.finished_at, o.id) > (ol.moment(:since), ol.id(:id))
    ORDER BY o.finished_at, o.id LIMIT :limit) AS j
ORDER BY j.finished_at, j.id

-- name: hold_for_archive
-- Lock jobs before checking what refers to them. (SKIP LOCKED: a job that is locked stays.)
SELECT CAST(j.id AS text) FROM ol.job AS j WHERE ol.in_ids(j.id, :ids)
ORDER BY j.id FOR UPDATE SKIP LOCKED

-- name: move_to_past
-- Move the jobs that still qualify to the archive; returns how many left the one table and reached the
-- other. Their rows are locked already.
WITH chosen AS MATERIALIZED (
    SELECT j.id AS moving FROM ol.job AS j
    WHERE ol.in_ids(j.id, :ids) AND j.finished_at < ol.ago(:after) AND ol.movable),
gone AS (
    DELETE FROM ol.job AS j USING chosen WHERE j.id = chosen.moving RETURNING j.*),
kept AS (
    INSERT INTO ol.past (ol.whole_row) SELECT ol.whole_row FROM gone
    RETURNING finished_at, tenant, queue, task),
counted AS (
    INSERT INTO ol.past_count AS c (day, tenant, queue, task, number)
    SELECT ol.day_of, tenant, queue, task, count(*) FROM kept GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (day, tenant, queue, task) DO UPDATE SET number = c.number + excluded.number)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM kept)

-- name: restore_from_past
-- Move jobs back: an operation changes them, or links other jobs to them.
WITH gone AS (
    DELETE FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span AND ol.in_reach
    RETURNING j.*),
back AS (INSERT INTO ol.job (ol.whole_row) SELECT ol.whole_row FROM gone RETURNING id),
ol.uncounted
SELECT CAST(id AS text) FROM back

-- name: purge_past
-- Remove the archived jobs that ended long enough ago.
WITH gone AS (
    DELETE FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span
        AND j.state = COALESCE(CAST(:state AS text), j.state)
        AND j.finished_at <= ol.ago(:older) AND ol.in_reach
    RETURNING j.id, j.finished_at, j.tenant, j.queue, j.task),
ol.uncounted
SELECT CAST(id AS text), CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS text)
FROM gone

-- name: past_of_short_queues
-- Queues whose own retention was set after jobs of theirs had moved: a day on which some of these are
-- due, when that day begins, and how long they are kept.
SELECT c.queue, ol.epoch(CAST(c.day AS timestamp) AT TIME ZONE 'UTC'), q.keep
FROM ol.past_count AS c JOIN ol.queue AS q ON q.name = c.queue
WHERE c.number > 0 AND q.keep < :keep
    AND CAST(c.day AS timestamp) AT TIME ZONE 'UTC' < ol.ago(q.keep)
GROUP BY c.queue, c.day, q.keep ORDER BY c.day LIMIT :limit

-- name: prune_past_queue
-- Remove some of a queue's archived jobs of one day that are past its own retention.
WITH due AS MATERIALIZED (
    SELECT j.id, j.finished_at FROM ol.past AS j
    WHERE ol.in_span AND j.queue = :queue AND j.finished_at < ol.ago(:older) LIMIT :limit),
gone AS (
    DELETE FROM ol.past AS j USING due
    WHERE ol.in_span AND j.id = due.id AND j.finished_at = due.finished_at
    RETURNING j.id, j.finished_at, j.tenant, j.queue, j.task),
ol.uncounted
SELECT CAST(id AS text) FROM gone

-- name: past_totals
-- The number of archived jobs, and the age of the first day.
SELECT CAST(COALESCE(sum(number), 0) AS bigint),
    ol.epoch(ol.now()) - ol.epoch(CAST(min(day) AS timestamp) AT TIME ZONE 'UTC')
FROM ol.past_count WHERE number > 0

-- name: past_partitions
-- The partitions of the archive by name, and whether each is attached; oldest first.
SELECT CAST(c.relname AS text), c.relispartition FROM pg_class AS c
WHERE c.relnamespace = (SELECT p.relnamespace FROM pg_class AS p
        WHERE p.oid = CAST(ol.table_name(past) AS regclass))
    AND c.relkind = 'r' AND c.relname ~ '^past_[0-9]{8}$'
ORDER BY c.relname

-- name: past_job
-- One archived job within the caller's access.
SELECT ol.job_columns FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span AND ol.in_reach

-- name: past_jobs
-- A page of archived jobs, newest first, after a cursor.
SELECT ol.job_columns FROM ol.past AS j
WHERE j.id < ol.id(:before)
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY j.id DESC LIMIT :limit

-- name: past_ids
-- A page of their ids.
SELECT CAST(j.id AS text) FROM ol.past AS j
WHERE j.id < ol.id(:before)
    AND (CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY j.id DESC LIMIT :limit

-- name: search_past
-- Matching archived jobs, newest first, from a cursor down to a floor.
SELECT ol.line_columns FROM ol.past AS j WHERE ol.job_fits AND ol.in_reach
ORDER BY j.id DESC LIMIT :limit

-- name: count_fitting_past
-- The number of matching archived jobs, from a cursor down to a floor.
SELECT count(*) FROM ol.past AS j WHERE ol.job_fits AND ol.in_reach

-- name: floor_of_past
-- The id that is a number of archived jobs below a cursor.
SELECT CAST(j.id AS text) FROM ol.past AS j WHERE j.id < ol.id(:before)
ORDER BY j.id DESC LIMIT 1 OFFSET :window

-- name: count_past
-- The number of archived jobs of a queue, a task or a tenant, or of all.
SELECT CAST(COALESCE(sum(number), 0) AS bigint) FROM ol.past_count
WHERE (CAST(:queue AS text) IS NULL OR queue = :queue)
    AND (CAST(:task AS text) IS NULL OR task = :task)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)

-- name: count_past_by_kind
-- The number of archived jobs of each kind, and the age of the oldest, to the day.
SELECT tenant, queue, task, 'succeeded', CAST(sum(number) AS bigint),
    ol.epoch(ol.now()) - ol.epoch(CAST(min(day) AS timestamp) AT TIME ZONE 'UTC')
FROM ol.past_count WHERE number > 0
GROUP BY tenant, queue, task ORDER BY 5 DESC LIMIT :limit

-- name: past_ended
-- The ends of awaited jobs that are in the archive. (Erased ones are not there.)
SELECT CAST(j.id AS text), j.state, CAST(j.result AS text), CAST(j.error AS text), false
FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span

-- name: past_in_reach
-- The archived jobs that are within the caller's access.
SELECT CAST(j.id AS text) FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span AND ol.in_reach

-- name: past_status
-- The states of watched jobs that are in the archive.
SELECT CAST(j.id AS text), j.state, j.attempt, j.fence, j.worker, j.tenant, j.queue, j.task,
    CAST(j.error AS text), ol.epoch(j.finished_at)
FROM ol.past AS j
WHERE ol.in_ids(j.id, :ids) AND ol.in_span
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)

-- name: past_states_by_age
-- The states of archived jobs that an action left alone, and whether each ended long enough ago.
SELECT CAST(j.id AS text), j.state, j.finished_at <= ol.ago(:older)
FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span
