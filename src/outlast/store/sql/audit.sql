-- fragment: believed_now
ol.believed AND ol.epoch(ol.now()) < :until

-- name: find_owner_dead
-- Running jobs whose lease expired a while ago, and whose worker has sent no heartbeat since.
SELECT CAST(j.id AS text), ol.epoch(ol.now()) - ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.ago(:late)
    AND NOT EXISTS (
        SELECT 1 FROM ol.worker AS w WHERE w.id = j.worker AND w.seen_at > j.lease_until)
    AND ol.believed_now
ORDER BY j.lease_until LIMIT :limit OFFSET :skip

-- name: find_forgotten
-- Running jobs whose lease expired a while ago although their worker is alive: it lost track of them.
SELECT CAST(j.id AS text), ol.epoch(ol.now()) - ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until < ol.ago(:late)
    AND EXISTS (
        SELECT 1 FROM ol.worker AS w WHERE w.id = j.worker AND w.seen_at > j.lease_until)
    AND ol.believed_now
ORDER BY j.lease_until LIMIT :limit OFFSET :skip

-- fragment: endless
((j.lease_until > ol.later(3600)
            AND ol.epoch(j.lease_until) - ol.epoch(ol.now())
                > 2 * COALESCE((SELECT max(lease) FROM ol.worker), 0)
            AND NOT EXISTS (SELECT 1 FROM ol.worker AS w WHERE w.id = j.worker))
        OR EXISTS (SELECT 1 FROM ol.worker AS w
            WHERE w.id = j.worker AND j.lease_until > ol.later(2 * w.lease + 60)
                AND (w.seen_at > ol.later(60) OR w.seen_at < ol.ago(2 * w.lease))))

-- name: find_endless
-- Running jobs with leases longer than their worker's: the worker is unknown, or has sent no
-- heartbeat since the clock stepped back.
SELECT CAST(j.id AS text), ol.epoch(j.lease_until) - ol.epoch(ol.now())
FROM ol.job AS j
WHERE j.state = 'running' AND j.lease_until > ol.now() AND ol.endless AND ol.believed_now
ORDER BY j.lease_until LIMIT :limit OFFSET :skip

-- name: find_owner_hung
-- Running jobs that are past their own deadline, and for how long.
-- postgres: a moment and a span make a moment
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(started_at) - timeout
FROM ol.job
WHERE state = 'running' AND timeout IS NOT NULL
    AND started_at + make_interval(secs => timeout + :late) < ol.now()
    AND :since + timeout + :late < ol.epoch(ol.now())
ORDER BY lease_until LIMIT :limit OFFSET :skip
-- sqlite: moments are seconds
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(started_at) - timeout
FROM ol.job
WHERE state = 'running' AND timeout IS NOT NULL AND started_at + timeout + :late < ol.now()
    AND :since + timeout + :late < ol.now()
ORDER BY lease_until LIMIT :limit OFFSET :skip

-- name: find_uncancelled
-- Running jobs whose cancel was requested and whose lease expired a while ago.
SELECT CAST(j.id AS text), ol.epoch(ol.now()) - ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE j.state = 'running' AND j.cancelling AND j.lease_until < ol.ago(:late) AND ol.believed_now
ORDER BY j.lease_until LIMIT :limit OFFSET :skip

-- name: find_timer_lost
-- Scheduled jobs that should have become ready a while ago.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(run_at)
FROM ol.job WHERE state = 'scheduled' AND run_at < ol.ago(:late)
ORDER BY run_at, id LIMIT :limit OFFSET :skip

-- name: find_expired
-- Queued jobs that should have ended by their own expiry a while ago.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(expires_at)
FROM ol.job
WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready')
    AND expires_at < ol.ago(:late)
ORDER BY expires_at LIMIT :limit OFFSET :skip

-- name: find_ownerless
-- Running jobs without an owner or a lease, which no expiry would reclaim.
SELECT CAST(id AS text), ol.epoch(ol.now()) - COALESCE(ol.epoch(started_at), ol.epoch(created_at))
FROM ol.job WHERE state = 'running' AND (lease_until IS NULL OR worker IS NULL)
ORDER BY lease_until LIMIT :limit OFFSET :skip

-- name: find_invisible
-- Queued jobs with an owner or a lease, among the next to be claimed.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(created_at) FROM (
    SELECT id, created_at, worker, lease_until FROM ol.job
    WHERE state = 'ready' ORDER BY queue, priority DESC, run_at, id LIMIT 1000) AS first_ready
WHERE worker IS NOT NULL OR lease_until IS NOT NULL
UNION ALL
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(created_at) FROM (
    SELECT id, created_at, worker, lease_until FROM ol.job
    WHERE state = 'scheduled' ORDER BY run_at, id LIMIT 1000) AS first_scheduled
WHERE worker IS NOT NULL OR lease_until IS NOT NULL
LIMIT :limit OFFSET :skip

-- name: find_leaked_slots
-- Keys still held by jobs that should have been pruned a while ago, among the oldest of those.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(finished_at) FROM (
    SELECT id, key, finished_at FROM ol.job AS j
    WHERE state IN ('succeeded', 'cancelled') AND state = :state AND finished_at < ol.ago(:late)
        AND ol.not_needed
    ORDER BY finished_at LIMIT 1000) AS oldest
WHERE key IS NOT NULL
LIMIT :limit OFFSET :skip

-- name: find_silent_workers
-- Registrations of workers without a heartbeat for so long that they are considered gone.
SELECT id, ol.epoch(ol.now()) - ol.epoch(seen_at)
FROM ol.worker WHERE seen_at < ol.ago(:late + lease) ORDER BY seen_at LIMIT :limit OFFSET :skip

-- name: find_poison
-- Jobs that reached their maximum of crashes, among the newest of the dead.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(finished_at) FROM (
    SELECT id, finished_at, crashes, max_crashes FROM ol.job
    WHERE state = 'dead' ORDER BY id DESC LIMIT 1000) AS newest
WHERE crashes >= max_crashes LIMIT :limit OFFSET :skip

-- name: find_undecodable
-- Jobs that could not be read, among the newest of the dead.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(finished_at) FROM (
    SELECT id, finished_at, error FROM ol.job
    WHERE state = 'dead' ORDER BY id DESC LIMIT 1000) AS newest
WHERE CAST(error AS text) LIKE '%"Undecodable"%' LIMIT :limit OFFSET :skip

-- name: attempts_after
-- A page of jobs that have attempts on record, and whether each still exists.
SELECT CAST(a.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = a.job) FROM (
    SELECT DISTINCT job FROM ol.attempt WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS a
ORDER BY a.job

-- name: events_after
-- A page of jobs that have events on record, and whether each still exists.
SELECT CAST(e.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.job) FROM (
    SELECT DISTINCT job FROM ol.event WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS e
ORDER BY e.job

-- name: edges_after
-- A page of jobs with prerequisites, and whether each still exists.
SELECT CAST(e.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.job) FROM (
    SELECT DISTINCT follower AS job FROM ol.edge
    WHERE follower > ol.id(:after) ORDER BY follower LIMIT :limit) AS e
ORDER BY e.job

-- name: flows_after
-- A page of flows, and whether each still has a job.
SELECT CAST(w.id AS text), EXISTS (SELECT 1 FROM ol.job AS j
    WHERE j.flow = COALESCE(w.part_of, w.id) AND j.flow IS NOT NULL)
FROM ol.flow AS w WHERE w.id > ol.id(:after) ORDER BY w.id LIMIT :limit

-- name: waiting_after
-- A page of waiting jobs: their recorded counts, and the counts from their prerequisites.
-- Jobs marked as unlinked are left out: a worker counts them when it links them.
SELECT CAST(w.id AS text), w.needs, w.waits_for, w.quorum, count(e.job),
    count(CASE WHEN e.job IS NOT NULL
        AND (p.id IS NULL OR p.state IN ('succeeded', 'dead', 'cancelled')) THEN 1 END),
    count(CASE WHEN e.job IS NOT NULL
        AND (p.id IS NULL OR p.state IN ('dead', 'cancelled')) THEN 1 END)
FROM (SELECT id, needs, waits_for, quorum FROM ol.job
    WHERE state = 'waiting' AND NOT unlinked AND wait_name IS NULL AND id > ol.id(:after)
    ORDER BY id LIMIT :limit) AS w
LEFT JOIN ol.edge AS e ON e.follower = w.id LEFT JOIN ol.job AS p ON p.id = e.job
GROUP BY w.id, w.needs, w.waits_for, w.quorum ORDER BY w.id

-- name: find_half_cancelled
-- Flows cancelled a while ago that still have jobs to cancel.
SELECT CAST(id AS text), ol.epoch(ol.now()) - ol.epoch(cancelled_at) FROM ol.flow
WHERE cancelled_at IS NOT NULL AND settled_at IS NULL AND cancelled_at < ol.ago(:late)
ORDER BY cancelled_at LIMIT :limit OFFSET :skip

-- name: hold_lost
-- Lock those of the jobs that are lost at this moment.
-- postgres: SKIP LOCKED: the transaction that has locked a row decides about it
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND j.state = 'running'
    AND (j.lease_until IS NULL OR j.worker IS NULL
        OR (ol.believed AND date_part('epoch', clock_timestamp()) < :until
            AND (j.lease_until < ol.now() OR ol.endless)))
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, j.cancelling, ol.epoch(j.lease_until)
FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND j.state = 'running'
    AND (j.lease_until IS NULL OR j.worker IS NULL
        OR (ol.believed AND ol.now() < :until AND (j.lease_until < ol.now() OR ol.endless)))

-- name: hold_overdue
-- Lock those of the jobs that are past their deadline at this moment.
-- postgres: SKIP LOCKED: the transaction that has locked a row decides about it
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE ol.in_ids(id, :ids) AND state = 'running' AND timeout IS NOT NULL
    AND (started_at + make_interval(secs => timeout + :late) < ol.now() OR started_at > ol.now())
    AND :since + timeout + :late < ol.epoch(ol.now())
    AND date_part('epoch', clock_timestamp()) < :until
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.claim_columns, cancelling, ol.epoch(lease_until)
FROM ol.job
WHERE ol.in_ids(id, :ids) AND state = 'running' AND timeout IS NOT NULL
    AND (started_at + timeout + :late < ol.now() OR started_at > ol.now())
    AND :since + timeout + :late < ol.now() AND ol.now() < :until

-- name: hold_jobs
-- Lock those of the jobs that no other transaction has locked.
-- postgres: SKIP LOCKED, so that an audit never waits
SELECT CAST(id AS text) FROM ol.job WHERE ol.in_ids(id, :ids) FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT CAST(id AS text) FROM ol.job WHERE ol.in_ids(id, :ids)

-- name: make_ready
-- Make those of the jobs ready that are scheduled and due.
UPDATE ol.job SET state = 'ready', ol.no_wait
WHERE ol.in_ids(id, :ids) AND state = 'scheduled' AND run_at <= ol.now()
RETURNING CAST(id AS text)

-- name: end_expired
-- Cancel those of the jobs that did not start before their expiry.
UPDATE ol.job
SET state = 'cancelled', finished_at = ol.now(), ol.no_wait,
    error = ol.json('{"type": "Expired", "message": "expires_at passed while it waited"}')
WHERE ol.in_ids(id, :ids) AND state IN ('waiting', 'scheduled', 'ready')
    AND expires_at IS NOT NULL AND expires_at <= ol.now()
RETURNING CAST(id AS text), tied

-- name: clear_owner
-- Clear the owner and the lease, which a queued job must not have.
UPDATE ol.job SET worker = NULL, lease_until = NULL
WHERE ol.in_ids(id, :ids) AND state IN ('waiting', 'scheduled', 'ready')
    AND (worker IS NOT NULL OR lease_until IS NOT NULL)
RETURNING CAST(id AS text)

-- name: remove_ended
-- Remove those of the jobs that ended long enough ago.
DELETE FROM ol.job AS j
WHERE ol.in_ids(id, :ids) AND state IN ('succeeded', 'cancelled')
    AND finished_at < ol.ago(:late) AND ol.not_needed
RETURNING CAST(id AS text), CAST(flow AS text), unique_mode, ol.references

-- name: remove_lost_attempts
-- Remove attempts whose job is gone.
DELETE FROM ol.attempt AS a
WHERE ol.in_ids(a.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = a.job)
RETURNING CAST(job AS text)

-- name: remove_lost_events
-- Remove events whose job is gone.
DELETE FROM ol.event AS e
WHERE ol.in_ids(e.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.job)
RETURNING CAST(job AS text)

-- name: remove_lost_edges
-- Remove edges whose job is gone.
DELETE FROM ol.edge AS e
WHERE ol.in_ids(e.follower, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = e.follower)
RETURNING CAST(follower AS text)

-- name: remove_lost_flows
-- Remove flows without jobs.
DELETE FROM ol.flow AS w
WHERE ol.in_ids(w.id, :ids) AND NOT EXISTS (SELECT 1 FROM ol.job AS j
    WHERE j.flow = COALESCE(w.part_of, w.id) AND j.flow IS NOT NULL)
RETURNING CAST(id AS text)
