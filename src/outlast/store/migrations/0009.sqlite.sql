-- Circuit breakers that are open: one row for each task in a queue whose dependency is away.
CREATE TABLE ol.breaker (
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    opening TEXT NOT NULL, -- its id: a breaker that opens again has another
    kind TEXT NOT NULL, -- the type of the error that opened it
    message TEXT NOT NULL, -- the latest error's
    opened_by TEXT NOT NULL, -- a worker
    opened_at REAL NOT NULL,
    probes INTEGER NOT NULL DEFAULT 0, -- that have been made
    probe_at REAL NOT NULL, -- not before
    probe_job TEXT, -- the claim that is the probe
    probe_fence INTEGER,
    PRIMARY KEY (queue, task)
) WITHOUT ROWID;
