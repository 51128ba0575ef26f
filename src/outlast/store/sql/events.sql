-- fragment: event_columns
ol.place(e), ol.event_details

-- fragment: event_details
CAST(e.job AS text), e.attempt, e.fence, e.kind, CAST(e.data AS text), ol.epoch(e.at), j.tenant,
    j.queue, j.task, CAST(j.flow AS text)

-- name: last_position
-- The last assigned place.
-- postgres: from the counter, because the event that had it may have been pruned
SELECT value FROM ol.counter WHERE name = 'place'
-- sqlite: from sqlite_sequence, whose numbers are never reused either; it has no index
SELECT COALESCE(max(seq), 0) FROM sqlite_sequence WHERE name = ol.table_name(event)

-- name: events_from
-- A page of events in the order of their places; of one tenant, if one is named.
SELECT ol.event_columns
FROM (SELECT * FROM ol.event AS e WHERE ol.place(e) > :after
    ORDER BY ol.place(e) LIMIT :limit) AS e
LEFT JOIN ol.job AS j ON j.id = e.job
WHERE CAST(:tenant AS text) IS NULL OR j.tenant = :tenant
ORDER BY ol.place(e)

-- name: events_reach
-- The end of that page over all tenants, and its number of events.
SELECT COALESCE(max(p.place), :after), count(*)
FROM (SELECT ol.place(e) AS place FROM ol.event AS e WHERE ol.place(e) > :after
    ORDER BY ol.place(e) LIMIT :limit) AS p

-- name: events_of_job
-- A page of one job's events in the order of their places.
SELECT ol.event_columns
FROM ol.event AS e JOIN ol.job AS j ON j.id = e.job
WHERE e.job = ol.id(:id) AND ol.place(e) > :after
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
ORDER BY ol.place(e) LIMIT :limit

-- name: job_status
-- The states of watched jobs.
SELECT CAST(j.id AS text), j.state, j.attempt, j.fence, j.worker, j.tenant, j.queue, j.task,
    CAST(j.error AS text), ol.epoch(j.finished_at)
FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids)
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)

-- name: record_ends
-- Record the outcomes of attempts that did not succeed at once as events.
INSERT INTO ol.event (job, attempt, fence, kind, data, at)
SELECT t.job, t.attempt, t.fence, 'attempt', ol.json(t.data), ol.now()
FROM ol.rows(job uuid, attempt integer, fence bigint, data text)

-- fragment: live_columns
CAST(j.id AS text), j.attempt, j.fence, j.worker, ol.epoch(j.started_at), ol.epoch(j.finished_at),
    j.tenant, j.queue, j.task, CAST(j.flow AS text)

-- name: live_clock
-- The database's clock.
SELECT ol.epoch(ol.now())

-- fragment: ended_after
j.finished_at >= ol.moment(:at) AND j.finished_at < ol.ago(:settle)
    AND (j.finished_at > ol.moment(:at) OR j.id > ol.id(:job))
ORDER BY j.finished_at, j.id LIMIT :limit

-- name: succeeded_after
-- A page of successes in the order of their ends, after a cursor, without the latest: earlier ends may not
-- be committed yet. Of all tenants, so that a page is read quickly however few of its rows are wanted.
SELECT ol.live_columns FROM ol.job AS j
WHERE j.state IN ('succeeded', 'cancelled') AND j.state = 'succeeded' AND ol.ended_after

-- name: succeeded_in_flow
-- The same for the jobs of one flow, along the index of its jobs.
SELECT ol.live_columns FROM ol.job AS j
WHERE j.flow = ol.id(:flow) AND j.flow IS NOT NULL AND j.state = 'succeeded' AND ol.ended_after

-- name: started_since
-- Running jobs that have started since a time. A job that is only offered has not started.
SELECT ol.live_columns FROM ol.job AS j
WHERE j.state = 'running' AND j.started_at >= ol.moment(:at) AND j.worker NOT LIKE 'offer-%'
    AND (CAST(:tenant AS text) IS NULL OR j.tenant = :tenant)
    AND (CAST(:flow AS text) IS NULL OR j.flow = ol.id(:flow))
LIMIT :limit
