-- fragment: stream_used
COALESCE((SELECT s.total FROM ol.stream AS s WHERE s.job = j.id
    ORDER BY s.job DESC, s.fence DESC, s.n DESC LIMIT 1), 0)

-- fragment: stream_columns
s.fence, s.n, s.attempt, CAST(s.data AS text), ol.epoch(s.at)

-- fragment: stream_rows
ol.rows(n bigint, job uuid, fence bigint, worker text, offered_by text, size bigint, data text)

-- fragment: stream_insert
counted AS (
    SELECT t.job, t.fence, t.n, j.attempt, t.data, t.size,
        j.used + sum(t.size) OVER (PARTITION BY t.job ORDER BY t.n) AS total
    FROM ol.stream_rows
    JOIN held AS j ON j.id = t.job AND j.fence = t.fence AND ol.same_owner
    WHERE NOT EXISTS (
        SELECT 1 FROM ol.stream AS s WHERE s.job = t.job AND s.fence = t.fence AND s.n = t.n))
INSERT INTO ol.stream (job, fence, n, attempt, data, total, at)
SELECT c.job, c.fence, c.n, c.attempt, CASE WHEN c.total <= :limit THEN ol.json(c.data) END,
    c.total, ol.now()
FROM counted AS c
WHERE c.total - c.size <= :limit
ON CONFLICT (job, fence, n) DO NOTHING
RETURNING CAST(job AS text)

-- name: store_stream
-- Store output of running attempts, if their claims still hold; repeated rows are stored and counted
-- once. The row that exceeds a job's limit is stored without its content, as a mark, and none after
-- it.
-- postgres: the jobs' rows are locked, so that no claim ends between the check and the insert
WITH held AS MATERIALIZED (
    SELECT j.id, j.fence, j.worker, j.attempt, ol.stream_used AS used
    FROM ol.job AS j WHERE ol.in_ids(j.id, :ids) AND j.state || '' = 'running'
    ORDER BY j.id FOR NO KEY UPDATE),
ol.stream_insert
-- sqlite: one writer at a time
WITH held AS MATERIALIZED (
    SELECT j.id, j.fence, j.worker, j.attempt, ol.stream_used AS used
    FROM ol.job AS j WHERE ol.in_ids(j.id, :ids) AND j.state = 'running'),
ol.stream_insert

-- name: drop_earlier_stream
-- Before the first output of a claim: remove that of earlier claims, if it takes more than half of
-- the job's limit.
DELETE FROM ol.stream AS s
WHERE s.job IN (
        SELECT j.id FROM ol.rows(job uuid, fence bigint, worker text, offered_by text)
        JOIN ol.job AS j ON j.id = t.job
        WHERE j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'
            AND ol.stream_used > :limit / 2)
    AND s.fence < (SELECT j.fence FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)

-- name: stored_streams
-- The rows of output that are stored, or belong to claims that still hold.
SELECT CAST(t.job AS text), t.fence, t.worker, t.n
FROM ol.rows(job uuid, fence bigint, worker text, offered_by text, n bigint)
JOIN ol.job AS j ON j.id = t.job
LEFT JOIN ol.stream AS s ON s.job = t.job AND s.fence = t.fence AND s.n = t.n
WHERE s.n IS NOT NULL OR (j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running')

-- name: stream_after
-- A page of a job's output, from a row on: a reader may have had a part of that one.
SELECT ol.stream_columns FROM ol.stream AS s
WHERE s.job = ol.id(:id) AND (s.fence, s.n) >= (:fence, :n)
ORDER BY s.fence, s.n LIMIT :limit

-- name: stream_tail
-- The last rows of a job's output, the newest first.
SELECT ol.stream_columns FROM ol.stream AS s WHERE s.job = ol.id(:id)
ORDER BY s.job DESC, s.fence DESC, s.n DESC LIMIT :limit

-- name: streams_after
-- The output of many jobs after the row that was read last of each.
SELECT CAST(s.job AS text), ol.stream_columns
FROM ol.rows(job uuid, fence bigint, n bigint)
JOIN ol.stream AS s ON s.job = t.job AND (s.job, s.fence, s.n) > (t.job, t.fence, t.n)
ORDER BY s.job, s.fence, s.n LIMIT :limit

-- name: prune_streams
-- Remove the output of pruned or erased jobs.
DELETE FROM ol.stream WHERE ol.in_ids(job, :ids)

-- name: streams_on_record
-- A page of jobs that have output on record, and whether each still exists.
SELECT CAST(s.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job) FROM (
    SELECT DISTINCT job FROM ol.stream WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS s
ORDER BY s.job

-- name: remove_lost_streams
-- Remove output whose job is gone.
DELETE FROM ol.stream AS s
WHERE ol.in_ids(s.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)
