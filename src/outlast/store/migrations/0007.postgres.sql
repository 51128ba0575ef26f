-- The idempotency key of a whole flow, a digest of its calls, and the ids of its jobs in the order
-- in which they were asked for.
ALTER TABLE ol.flow ADD COLUMN tenant text;
ALTER TABLE ol.flow ADD COLUMN key text;
ALTER TABLE ol.flow ADD COLUMN shape text;
ALTER TABLE ol.flow ADD COLUMN jobs json;
CREATE UNIQUE INDEX flow_key ON ol.flow (tenant, key) WHERE key IS NOT NULL;
