-- fragment: event_columns
ol.place(e), ol.told_columns

-- fragment: told_columns
CAST(e.job AS text), e.attempt, e.fence, e.kind, CAST(e.data AS text), ol.epoch(e.at), j.tenant,
    j.queue, j.task

-- name: unplaced
-- Whether something was committed, above a number, that has no place yet.
-- postgres: its own small index
SELECT 1 FROM ol.event WHERE place IS NULL AND seq > :above LIMIT 1
-- sqlite: a number is a place
SELECT 1 WHERE :above IS NULL

-- name: hold_places
-- Wait until nobody else gives places. What comes after it sees all that they have given.
-- postgres: the counter's row is the lock; it is free when the places are visible
SELECT value FROM ol.counter WHERE name = 'place' FOR UPDATE
-- sqlite: a number is a place
SELECT 0 WHERE 1 = 0

-- name: place_events
-- Give places to what was committed and has none: how many, and the highest number among them.
-- postgres: in the order of their numbers, which is the order of things that followed each other
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
-- sqlite: a number is a place
SELECT 0, 0 WHERE :above IS NULL AND :limit IS NULL

-- name: last_place
-- The last place that was given.
-- postgres: counted, because the event that had it may have been pruned
SELECT value FROM ol.counter WHERE name = 'place'
-- sqlite: numbers are never given twice either; who keeps the table's count has no index to look in
SELECT COALESCE(max(seq), 0) FROM sqlite_sequence WHERE name = 'ol.event'

-- name: told_after
-- A page of events in the order of their places; of one tenant, if one is named.
SELECT ol.event_columns
FROM (SELECT * FROM ol.event AS e WHERE ol.place(e) > :after
    ORDER BY ol.place(e) LIMIT :limit) AS e
LEFT JOIN ol.job AS j ON j.id = e.job
WHERE CAST(:tenant AS text) IS NULL OR j.tenant = :tenant
ORDER BY ol.place(e)

-- name: told_reach
-- How far that page goes, whomever its events belong to, and of how many it is.
SELECT COALESCE(max(p.place), :after), count(*)
FROM (SELECT ol.place(e) AS place FROM ol.event AS e WHERE ol.place(e) > :after
    ORDER BY ol.place(e) LIMIT :limit) AS p

-- name: told_of_job
-- A page of one job's events in the order of their places.
SELECT ol.event_columns
FROM ol.event AS e JOIN ol.job AS j ON j.id = e.job
WHERE e.job = ol.id(:id) AND ol.place(e) > :after
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY ol.place(e) LIMIT :limit

-- name: unplaced_of_job
-- One job's events that have no place yet.
-- postgres: they stand last in the index of its events
SELECT 0, ol.told_columns FROM ol.event AS e JOIN ol.job AS j ON j.id = e.job
WHERE e.job = ol.id(:id) AND e.place IS NULL
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY e.seq LIMIT :limit
-- sqlite: a number is a place
SELECT 0, ol.told_columns FROM ol.event AS e JOIN ol.job AS j ON j.id = e.job
WHERE 1 = 0 AND :id = :tenant LIMIT :limit

-- name: standing
-- How jobs stand that somebody watches.
SELECT CAST(j.id AS text), j.state, j.attempt, j.fence, j.worker, j.tenant, j.queue, j.task,
    CAST(j.error AS text), ol.epoch(j.finished_at)
FROM ol.job AS j
WHERE j.id IN (SELECT ol.each_id(:ids))
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)

-- name: record_ends
-- Tell those who read a job's events how its attempts ended that did not succeed at once.
INSERT INTO ol.event (job, attempt, fence, kind, data, at)
SELECT t.job, t.attempt, t.fence, 'attempt', ol.json(t.data), ol.now()
FROM ol.rows(job uuid, attempt integer, fence bigint, data text)
