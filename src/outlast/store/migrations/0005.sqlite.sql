-- Statistics of our own, and what is asked of the ends of jobs and attempts by their time.

-- What happened in one span of time to one tenant's jobs in one queue, and what there was at its end.
-- The tenant '' and the queue '' stand for all those that are too many to be kept apart.
CREATE TABLE ol.statistic (
    span INTEGER NOT NULL CHECK (span > 0), -- seconds
    at INTEGER NOT NULL, -- seconds since 1970: its beginning
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    succeeded INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0, -- attempts
    crashed INTEGER NOT NULL DEFAULT 0, -- attempts
    waits TEXT NOT NULL, -- how many waited so long, by class; and the sum of seconds
    runs TEXT NOT NULL,
    depths TEXT, -- by state; none: nobody counted then
    PRIMARY KEY (span, at, tenant, queue)
) WITHOUT ROWID;

-- Going dead is rare, and so are attempts that do not succeed: the way of a job that does is as it was.
CREATE INDEX ol.index(job_dead_at) ON ol.job (finished_at) WHERE state = 'dead';
CREATE INDEX ol.index(attempt_ended) ON ol.attempt (finished_at);
CREATE INDEX ol.index(attempt_crashed) ON ol.attempt (finished_at) WHERE outcome = 'crashed';
-- Who died, and whose writes came too late.
CREATE INDEX ol.index(event_loss) ON ol.event (seq) WHERE kind IN ('worker-lost', 'write-refused');
