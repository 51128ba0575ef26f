-- Where events stand for those who read them: numbers become visible in the order in which they were
-- taken only if nobody who took one commits late. A place is given to what has been committed, by one
-- at a time: whoever has seen a place has seen, or can see, every lower one.

ALTER TABLE ol.event ADD COLUMN place bigint;
CREATE UNIQUE INDEX event_place ON ol.event (place) WHERE place IS NOT NULL;
CREATE INDEX event_new ON ol.event (seq) WHERE place IS NULL;
-- A job's events are read in the same order. (Those without a place stand last, and are found too.)
DROP INDEX ol.old_index(event_job);
CREATE INDEX event_job ON ol.event (job, place);

-- What is counted for all, where a gap or a number given twice would matter.
CREATE TABLE ol.counter (
    name text PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO ol.counter (name, value) VALUES ('place', 0);
