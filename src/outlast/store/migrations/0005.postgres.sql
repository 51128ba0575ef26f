-- Statistics of our own, and what is asked of the ends of jobs and attempts by their time.

-- What happened in one span of time to one tenant's jobs in one queue, and what there was at its end.
-- The tenant '' and the queue '' stand for all those that are too many to be kept apart.
CREATE TABLE ol.statistic (
    span integer NOT NULL CHECK (span > 0), -- seconds
    at bigint NOT NULL, -- seconds since 1970: its beginning
    tenant text NOT NULL,
    queue text NOT NULL,
    succeeded bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0, -- attempts
    crashed bigint NOT NULL DEFAULT 0, -- attempts
    waits json NOT NULL, -- how many waited so long, by class; and the sum of seconds
    runs json NOT NULL,
    depths json, -- by state; none: nobody counted then
    PRIMARY KEY (span, at, tenant, queue)
) WITH (fillfactor = 70);

-- Going dead is rare, and so are attempts that do not succeed: the way of a job that does is as it was.
CREATE INDEX job_dead_at ON ol.job (finished_at) WHERE state = 'dead';
CREATE INDEX attempt_ended ON ol.attempt (finished_at);
CREATE INDEX attempt_crashed ON ol.attempt (finished_at) WHERE outcome = 'crashed';
-- Who died, and whose writes came too late.
CREATE INDEX event_loss ON ol.event (seq) WHERE kind IN ('worker-lost', 'write-refused');
