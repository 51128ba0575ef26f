-- The idempotency key of a whole flow, a digest of its calls, and the ids of its jobs in the order
-- in which they were asked for.
ALTER TABLE ol.flow ADD COLUMN tenant TEXT;
ALTER TABLE ol.flow ADD COLUMN key TEXT;
ALTER TABLE ol.flow ADD COLUMN shape TEXT;
ALTER TABLE ol.flow ADD COLUMN jobs TEXT;
CREATE UNIQUE INDEX ol.index(flow_key) ON ol.flow (tenant, key) WHERE key IS NOT NULL;
