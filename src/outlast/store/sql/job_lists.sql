-- Lists of jobs for people: in the order of one of their times, by selection, and with their arguments. An
-- ordered statement reads a bounded number of jobs along an index, after a cursor, and returns for each
-- whether it matches.

-- fragment: listed_fits
((CAST(:queue AS text) IS NULL OR j.queue = :queue)
    AND (CAST(:task AS text) IS NULL OR j.task = :task)
    AND (CAST(:state AS text) IS NULL OR j.state || '' = :state)
    AND ol.search_fits AND ol.in_reach)

-- name: enqueued_first
-- Jobs in any state, the oldest first.
SELECT CAST(j.id AS text), CAST(:at AS double precision), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.id > ol.id(:id) ORDER BY s.id LIMIT :window) AS j
ORDER BY j.id

-- name: enqueued_first_past
-- Archived jobs, the oldest first.
-- postgres only: SQLite has no archive
SELECT CAST(j.id AS text), CAST(:at AS double precision), ol.listed_fits
FROM (SELECT * FROM ol.past AS s WHERE s.id > ol.id(:id) ORDER BY s.id LIMIT :window) AS j
ORDER BY j.id

-- name: enqueued_first_dead
-- Dead jobs, the oldest first.
SELECT CAST(j.id AS text), CAST(:at AS double precision), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.id > ol.id(:id) AND s.state = 'dead'
    ORDER BY s.id LIMIT :window) AS j
ORDER BY j.id

-- name: enqueued_first_waiting
-- Jobs that wait for others, the oldest first.
SELECT CAST(j.id AS text), CAST(:at AS double precision), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.id > ol.id(:id) AND s.state = 'waiting'
    ORDER BY s.id LIMIT :window) AS j
ORDER BY j.id

-- name: due_first
-- Scheduled jobs, the next one first.
SELECT CAST(j.id AS text), ol.epoch(j.run_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state = 'scheduled'
        AND (s.run_at, s.id) > (ol.moment(:at), ol.id(:id))
    ORDER BY s.run_at, s.id LIMIT :window) AS j
ORDER BY j.run_at, j.id

-- name: due_last
-- Scheduled jobs, the last one first.
SELECT CAST(j.id AS text), ol.epoch(j.run_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state = 'scheduled'
        AND (s.run_at, s.id) < (ol.moment(:at), ol.id(:id))
    ORDER BY s.run_at DESC, s.id DESC LIMIT :window) AS j
ORDER BY j.run_at DESC, j.id DESC

-- name: ended_first
-- Succeeded and cancelled jobs, the earliest end first.
SELECT CAST(j.id AS text), ol.epoch(j.finished_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state IN ('succeeded', 'cancelled')
        AND s.finished_at >= ol.moment(:at)
        AND (s.finished_at, s.id) > (ol.moment(:at), ol.id(:id))
    ORDER BY s.finished_at, s.id LIMIT :window) AS j
ORDER BY j.finished_at, j.id

-- name: ended_last
-- Succeeded and cancelled jobs, the latest end first.
SELECT CAST(j.id AS text), ol.epoch(j.finished_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state IN ('succeeded', 'cancelled')
        AND s.finished_at <= ol.moment(:at)
        AND (s.finished_at, s.id) < (ol.moment(:at), ol.id(:id))
    ORDER BY s.finished_at DESC, s.id DESC LIMIT :window) AS j
ORDER BY j.finished_at DESC, j.id DESC

-- name: died_first
-- Dead jobs, the earliest end first.
SELECT CAST(j.id AS text), ol.epoch(j.finished_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state = 'dead' AND s.finished_at >= ol.moment(:at)
        AND (s.finished_at, s.id) > (ol.moment(:at), ol.id(:id))
    ORDER BY s.finished_at, s.id LIMIT :window) AS j
ORDER BY j.finished_at, j.id

-- name: died_last
-- Dead jobs, the latest end first.
SELECT CAST(j.id AS text), ol.epoch(j.finished_at), ol.listed_fits
FROM (SELECT * FROM ol.job AS s WHERE s.state = 'dead' AND s.finished_at <= ol.moment(:at)
        AND (s.finished_at, s.id) < (ol.moment(:at), ol.id(:id))
    ORDER BY s.finished_at DESC, s.id DESC LIMIT :window) AS j
ORDER BY j.finished_at DESC, j.id DESC

-- name: selected_jobs
-- Some jobs by id, as lines of a list.
SELECT ol.line_columns FROM ol.job AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_reach

-- name: selected_past
-- The archived ones among them.
-- postgres only: SQLite has no archive
SELECT ol.line_columns FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span AND ol.in_reach

-- name: listed_arguments
-- The arguments of some jobs, unless they are long, and their length.
SELECT CAST(j.id AS text),
    CASE WHEN length(CAST(j.args AS text)) <= :longest THEN CAST(j.args AS text) END,
    length(CAST(j.args AS text))
FROM ol.job AS j WHERE ol.in_ids(j.id, :ids)

-- name: listed_arguments_past
-- The same of archived jobs.
-- postgres only: SQLite has no archive
SELECT CAST(j.id AS text),
    CASE WHEN length(CAST(j.args AS text)) <= :longest THEN CAST(j.args AS text) END,
    length(CAST(j.args AS text))
FROM ol.past AS j WHERE ol.in_ids(j.id, :ids) AND ol.in_span
