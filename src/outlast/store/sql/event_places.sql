-- postgres only: on SQLite, with one writer at a time, an event's number is its place

-- name: unsequenced
-- Whether a committed event above a number has no place yet, by a small partial index.
SELECT 1 FROM ol.event WHERE place IS NULL AND seq > :above LIMIT 1

-- name: lock_positions
-- Wait until no other process assigns places. Later statements see all that are assigned.
-- The counter's row is the lock; it is free when the places are visible.
SELECT value FROM ol.counter WHERE name = 'place' FOR UPDATE

-- name: assign_positions
-- Assign places to committed events that have none: how many, and the highest number among them.
-- In the order of their numbers, which respects causality.
WITH fresh AS MATERIALIZED (
    SELECT s.seq, row_number() OVER (ORDER BY s.seq) AS n
    FROM (SELECT seq FROM ol.event WHERE place IS NULL AND seq > :above
        ORDER BY seq LIMIT :limit) AS s),
counted AS (
    UPDATE ol.counter SET value = value + (SELECT count(*) FROM fresh)
    WHERE name = 'place' RETURNING value - (SELECT count(*) FROM fresh) AS before),
placed AS (
    UPDATE ol.event AS e SET place = counted.before + fresh.n
    FROM fresh, counted WHERE e.seq = fresh.seq RETURNING e.seq)
SELECT count(*), COALESCE(max(seq), 0) FROM placed

-- name: unsequenced_of_job
-- One job's events that have no place yet. They are last in the index of its events.
SELECT 0, ol.event_details FROM ol.event AS e JOIN ol.job AS j ON j.id = e.job
WHERE e.job = ol.id(:id) AND e.place IS NULL
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY e.seq LIMIT :limit
