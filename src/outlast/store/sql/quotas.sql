-- fragment: quota_asked
SELECT t.queue, t.lane, t.asked,
        CASE WHEN t.lane = '' THEN q.quota ELSE q.lane_quota END AS allowed,
        CASE WHEN t.lane = '' THEN q.quota_period ELSE q.lane_quota_period END AS period
    FROM ol.rows(queue text, lane text, asked integer) JOIN ol.queue AS q ON q.name = t.queue

-- The beginning of the current period. (`whole` adds the fraction that is subtracted here.)
-- fragment: period_start
ol.whole(ol.epoch(ol.now()) / a.period - 0.000001) * a.period

-- While this call waited for the counter, others have begun the next period. (A later beginning that is
-- less than a period away belongs to another length, from before the quota was changed.)
-- fragment: next_has_begun
u.starts_at >= excluded.starts_at + (
        SELECT CASE WHEN u.lane = '' THEN q.quota_period ELSE q.lane_quota_period END
        FROM ol.queue AS q WHERE q.name = u.queue)

-- fragment: used_before
CASE WHEN u.starts_at = excluded.starts_at OR ol.next_has_begun THEN u.used ELSE 0 END

-- name: take_quota
-- Count new jobs of queues and lanes ('' is the whole queue), each if its quota has room for all; the
-- others are not returned. Counters are locked in the order of their names.
INSERT INTO ol.quota AS u (queue, lane, starts_at, used)
SELECT a.queue, a.lane, ol.period_start, a.asked FROM (ol.quota_asked) AS a
WHERE a.asked <= a.allowed
ORDER BY a.queue, a.lane
ON CONFLICT (queue, lane) DO UPDATE SET
    starts_at = CASE WHEN ol.next_has_begun THEN u.starts_at ELSE excluded.starts_at END,
    used = excluded.used + ol.used_before
WHERE excluded.used + ol.used_before <= (
    SELECT CASE WHEN u.lane = '' THEN q.quota ELSE q.lane_quota END
    FROM ol.queue AS q WHERE q.name = u.queue)
RETURNING queue, lane

-- name: quota_use
-- The used part of quotas in this period, and when the next period begins.
SELECT a.queue, a.lane, a.asked, a.allowed,
    COALESCE(CASE WHEN u.starts_at = ol.period_start THEN u.used END, 0), ol.period_start + a.period
FROM (ol.quota_asked) AS a LEFT JOIN ol.quota AS u ON u.queue = a.queue AND u.lane = a.lane
WHERE a.allowed IS NOT NULL
ORDER BY a.queue, a.lane

-- name: transaction_isolation
-- The isolation level of a caller's transaction.
-- postgres only: on SQLite there is one writer at a time
SELECT current_setting('transaction_isolation')

-- name: reservation_exists
-- Whether a reservation exists: the response to its commit was lost.
SELECT 1 FROM ol.quota_reservation WHERE id = ol.id(:id) LIMIT 1

-- name: reserve_quota
-- Record the jobs that a reservation counts.
INSERT INTO ol.quota_reservation (id, queue, lane, number, starts_at, reserved_at)
SELECT ol.id(:id), t.queue, t.lane, t.asked, u.starts_at, ol.now()
FROM ol.rows(queue text, lane text, asked integer)
JOIN ol.quota AS u ON u.queue = t.queue AND u.lane = t.lane

-- name: settle_quota
-- Remove reservations that are used up.
DELETE FROM ol.quota_reservation WHERE id = ol.id(:id) AND (queue, lane, number) IN (
    SELECT t.queue, t.lane, t.asked FROM ol.rows(queue text, lane text, asked integer))
RETURNING queue, lane

-- name: use_reservation
-- Use a part of reservations: fewer jobs were inserted than were counted.
UPDATE ol.quota_reservation AS j SET number = j.number - t.asked
FROM ol.rows(queue text, lane text, asked integer)
WHERE j.id = ol.id(:id) AND j.queue = t.queue AND j.lane = t.lane AND j.number > t.asked
RETURNING ol.updated(queue), ol.updated(lane)

-- name: lapsed_reservations
-- Remove reservations of transactions that were rolled back.
-- postgres: SKIP LOCKED: one that an open transaction has settled is used if that commits
WITH old AS MATERIALIZED (
    SELECT id, queue, lane FROM ol.quota_reservation WHERE reserved_at < ol.ago(:seconds)
    LIMIT :limit FOR UPDATE SKIP LOCKED)
DELETE FROM ol.quota_reservation AS r USING old
WHERE r.id = old.id AND r.queue = old.queue AND r.lane = old.lane
RETURNING r.queue, r.lane, r.number, r.starts_at
-- sqlite: one writer at a time
DELETE FROM ol.quota_reservation WHERE (id, queue, lane) IN (
    SELECT id, queue, lane FROM ol.quota_reservation WHERE reserved_at < ol.ago(:seconds) LIMIT :limit)
RETURNING queue, lane, number, starts_at

-- name: return_quota
-- Subtract jobs from the counters of the period in which they were counted.
-- postgres: locked in the order of take_quota
WITH held AS MATERIALIZED (
    SELECT u.queue, u.lane, t.asked
    FROM ol.rows(queue text, lane text, starts_at double precision, asked integer)
    JOIN ol.quota AS u ON u.queue = t.queue AND u.lane = t.lane AND u.starts_at = t.starts_at
    ORDER BY u.queue, u.lane FOR UPDATE OF u)
UPDATE ol.quota AS u SET used = ol.greatest(0, u.used - held.asked)
FROM held WHERE u.queue = held.queue AND u.lane = held.lane
-- sqlite: one writer at a time
UPDATE ol.quota AS u SET used = ol.greatest(0, u.used - t.asked)
FROM ol.rows(queue text, lane text, starts_at double precision, asked integer)
WHERE u.queue = t.queue AND u.lane = t.lane AND u.starts_at = t.starts_at

-- name: prune_quotas
-- Remove counters of periods that are over. (A counter that is used meanwhile has a later beginning.)
DELETE FROM ol.quota WHERE (queue, lane, starts_at) IN (
    SELECT u.queue, u.lane, u.starts_at FROM ol.quota AS u LEFT JOIN ol.queue AS q ON q.name = u.queue
    WHERE u.starts_at + COALESCE(CASE WHEN u.lane = '' THEN q.quota_period
        ELSE q.lane_quota_period END, 0) < ol.epoch(ol.now())
    LIMIT :limit)
RETURNING lane
