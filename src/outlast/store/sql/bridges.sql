-- name: report_bridges
-- Store a worker's reports on outboxes and sources: totals grow, other columns are replaced.
INSERT INTO ol.bridge AS b (kind, name, broker, task, queues, received, stored, undecodable, lag,
    error, message_at, seen_at)
SELECT t.kind, t.name, t.broker, t.task, ol.json(t.queues), t.received, t.stored, t.undecodable,
    t.lag, t.error, CASE WHEN t.received > 0 THEN ol.now() END, ol.now()
FROM ol.rows(kind text, name text, broker text, task text, queues text, received bigint,
    stored bigint, undecodable bigint, lag bigint, error text)
WHERE true
ON CONFLICT (kind, name) DO UPDATE SET broker = excluded.broker, task = excluded.task,
    queues = excluded.queues, received = b.received + excluded.received,
    stored = b.stored + excluded.stored, undecodable = b.undecodable + excluded.undecodable,
    lag = excluded.lag, error = excluded.error,
    message_at = COALESCE(excluded.message_at, b.message_at), seen_at = excluded.seen_at

-- name: prune_bridges
-- Delete outboxes and sources without a report for long.
DELETE FROM ol.bridge WHERE seen_at < ol.ago(:keep)

-- name: bridges
-- Outboxes and sources, by name.
SELECT kind, name, broker, task, CAST(queues AS text), received, stored, undecodable, lag, error,
    ol.epoch(message_at), ol.epoch(seen_at), ol.epoch(ol.now())
FROM ol.bridge WHERE CAST(:kind AS text) IS NULL OR kind = :kind ORDER BY kind, name
