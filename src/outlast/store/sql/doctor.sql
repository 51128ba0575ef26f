-- name: schema_version
-- The schema version, and the oldest version that a release must know to use it.
SELECT max(version), max(compatible_from) FROM ol.migration

-- name: owners
-- The number of running jobs of each worker.
SELECT worker, count(*) FROM ol.job WHERE state = 'running' GROUP BY worker

-- name: server_settings
-- Settings of the database that affect durability.
-- postgres only: server settings; on SQLite every connection sets these itself
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'transaction_read_only')
UNION ALL
SELECT 'in_recovery', CAST(pg_is_in_recovery() AS text)

-- name: job_constraints
-- The valid constraints and indexes of the table of jobs.
-- postgres: from the catalogue
SELECT CAST(conname AS text) FROM pg_constraint
WHERE conrelid = CAST(ol.table_name(job) AS regclass) AND convalidated
UNION
SELECT CAST(c.relname AS text) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = CAST(ol.table_name(job) AS regclass) AND i.indisvalid
-- sqlite: from the text of the schema; names of indexes begin with that of the table
SELECT 'job' || substr(name, length(ol.table_name(job)) + 1) FROM sqlite_master
WHERE type = 'index' AND tbl_name = ol.table_name(job)
UNION
SELECT c.name FROM sqlite_master AS m, (
    SELECT 'job_owned' AS name UNION SELECT 'job_owner' UNION SELECT 'job_finished'
    UNION SELECT 'job_result') AS c
WHERE m.name = ol.table_name(job) AND m.sql LIKE '%CONSTRAINT ' || c.name || ' CHECK%'

-- name: holding_back
-- Holders of old snapshots, which hold back vacuum: kind, name, program, and age.
-- postgres only: sessions, prepared transactions and idle slots; and how many sessions are not
-- visible. On SQLite a reader only keeps the log from being restarted.
SELECT 'session', CAST(pid AS text), application_name, ol.epoch(ol.now()) - ol.epoch(xact_start)
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND xact_start < ol.ago(:late) AND pid <> pg_backend_pid()
    AND backend_type IN ('client backend', 'walsender')
    AND (datname IS NULL OR datname = current_database())
UNION ALL
SELECT 'prepared transaction', gid, '', ol.epoch(ol.now()) - ol.epoch(prepared)
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < ol.ago(:late)
UNION ALL
SELECT 'replication slot', CAST(slot_name AS text), '', NULL
FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active
UNION ALL
SELECT 'hidden', CAST(count(*) AS text), '', NULL
FROM pg_stat_activity WHERE query = '<insufficient privilege>' HAVING count(*) > 0
LIMIT 50

-- name: unlocked
-- Workers with heartbeats and without a liveness lock: whether it was never acquired, or is not held.
-- postgres: looked up, not tried: a lock taken for a moment could keep its owner from acquiring it
SELECT w.id, CASE WHEN w.proof IS NULL THEN 'never' ELSE 'lost' END
FROM ol.worker AS w
WHERE w.seen_at > ol.ago(w.lease) AND w.started_at < ol.ago(:late)
    AND (w.proof IS NULL OR NOT EXISTS (
        SELECT 1 FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND ((CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint))
                = hashtextextended(w.id, 0)))
-- sqlite: the file system knows whether a file is locked
SELECT w.id, CASE WHEN w.proof IS NULL THEN 'never' ELSE 'ask' END
FROM ol.worker AS w WHERE w.seen_at > ol.ago(w.lease) AND w.started_at < ol.ago(:late)

-- name: awaited_signals
-- Jobs that wait for signals, by queue, task and the signals' names, and how long the oldest has waited.
SELECT j.queue, j.task, CAST(w.subjects AS text), count(*), ol.epoch(ol.now()) - ol.epoch(min(w.since))
FROM ol.job AS j JOIN ol.wait AS w ON w.job = j.id AND w.name = j.wait_name
WHERE j.state = 'waiting' AND w.kind = 'signal'
GROUP BY j.queue, j.task, CAST(w.subjects AS text)
ORDER BY j.queue, j.task, CAST(w.subjects AS text) LIMIT :limit

-- name: kept_step_names
-- Names of stored steps of jobs that have begun and wait for their next attempt, by task.
SELECT j.task, s.name, count(*) FROM ol.job AS j JOIN ol.step AS s ON s.job = j.id
WHERE j.state IN ('waiting', 'scheduled', 'ready') AND j.fence > 0
GROUP BY j.task, s.name ORDER BY j.task, s.name LIMIT :limit
