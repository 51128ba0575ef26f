-- name: queue_limits
-- The limits of queues, as the code declares them and as an operator changed them; and the number of jobs
-- admitted in the current period of a quota.
SELECT name, CAST(declared AS text), CAST(overrides AS text), ol.epoch(changed_at), (
    SELECT u.used FROM ol.quota AS u WHERE u.queue = a.name AND u.lane = ''
        AND u.starts_at = ol.whole(ol.epoch(ol.now()) / a.quota_period - 0.000001) * a.quota_period)
FROM ol.queue AS a
WHERE declared IS NOT NULL OR overrides IS NOT NULL ORDER BY name

-- name: hold_queue_limits
-- The limits of one queue, locked until they are changed.
-- postgres: of two concurrent changes, the second sees the first
SELECT CAST(declared AS text), CAST(overrides AS text) FROM ol.queue WHERE name = :queue FOR UPDATE
-- sqlite: one writer at a time
SELECT declared, overrides FROM ol.queue WHERE name = :queue

-- name: lock_limits
-- Wait for open claims of a queue: later ones see its new limits.
-- postgres only: claims hold this lock, shared, until they commit; on SQLite there is one writer at a time
SELECT CAST(pg_advisory_xact_lock(ol.lane_lock(:queue, '')) AS text)

-- name: set_limits
-- Put limits in force.
INSERT INTO ol.queue (name, changed_at, declared, overrides, limited, running, lane_by, lane_running,
    rate, lane_rate, burst, weights, ordered, lane_batch, on_dead, most_waiting, overflow, quota,
    quota_period, lane_quota, lane_quota_period)
SELECT t.name, ol.now(), ol.json(t.declared), ol.json(t.overrides), t.limited, t.running, t.lane_by,
    t.lane_running, t.rate, t.lane_rate, t.burst, ol.json(t.weights), t.ordered, t.lane_batch, t.on_dead,
    t.most_waiting, t.overflow, t.quota, t.quota_period, t.lane_quota, t.lane_quota_period
FROM ol.rows(name text, declared text, overrides text, limited boolean, running integer,
    lane_by text, lane_running integer, rate double precision, lane_rate double precision,
    burst double precision, weights text, ordered boolean, lane_batch integer, on_dead text,
    most_waiting integer, overflow text, quota integer, quota_period double precision,
    lane_quota integer, lane_quota_period double precision)
WHERE true
ON CONFLICT (name) DO UPDATE SET changed_at = excluded.changed_at, declared = excluded.declared,
    overrides = excluded.overrides, limited = excluded.limited, running = excluded.running,
    lane_by = excluded.lane_by, lane_running = excluded.lane_running, rate = excluded.rate,
    lane_rate = excluded.lane_rate, burst = excluded.burst, weights = excluded.weights,
    ordered = excluded.ordered, lane_batch = excluded.lane_batch, on_dead = excluded.on_dead,
    most_waiting = excluded.most_waiting,
    overflow = excluded.overflow, quota = excluded.quota, quota_period = excluded.quota_period,
    lane_quota = excluded.lane_quota, lane_quota_period = excluded.lane_quota_period

