-- Circuit breakers that are open: one row for each task in a queue whose dependency is away.
CREATE TABLE ol.breaker (
    queue text NOT NULL,
    task text NOT NULL,
    opening text NOT NULL, -- its id: a breaker that opens again has another
    kind text NOT NULL, -- the type of the error that opened it
    message text NOT NULL, -- the latest error's
    opened_by text NOT NULL, -- a worker
    opened_at timestamptz NOT NULL,
    probes integer NOT NULL DEFAULT 0, -- that have been made
    probe_at timestamptz NOT NULL, -- not before
    probe_job uuid, -- the claim that is the probe
    probe_fence bigint,
    PRIMARY KEY (queue, task)
);
