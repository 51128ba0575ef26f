-- Jobs, their attempts and events; workers, queues, duties.

-- One row is one job for its whole life. Times are seconds since 1970, ids and JSON are text.
CREATE TABLE ol.job (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL CHECK (tenant <> ''),
    queue TEXT NOT NULL CHECK (queue <> ''),
    task TEXT NOT NULL,
    args TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN
        ('waiting', 'scheduled', 'ready', 'running', 'succeeded', 'dead', 'cancelled')),
    priority INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    run_at REAL NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    max_attempts INTEGER NOT NULL CHECK (max_attempts > 0),
    max_crashes INTEGER NOT NULL CHECK (max_crashes > 0),
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker TEXT,
    lease_until REAL,
    cancelling INTEGER NOT NULL DEFAULT 0,
    timeout REAL CHECK (timeout > 0),
    retry TEXT,
    key TEXT,
    expires_at REAL,
    result TEXT,
    error TEXT,
    trace TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    -- An owner and a lease while it runs, and only then; a final job has an end, and only then.
    CONSTRAINT job_owned CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT job_owner CHECK (CASE
        WHEN state = 'running' THEN worker IS NOT NULL
        WHEN state IN ('waiting', 'scheduled', 'ready') THEN worker IS NULL
        ELSE true END),
    CONSTRAINT job_finished CHECK
        ((state IN ('succeeded', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_result CHECK (result IS NULL OR state = 'succeeded')
);

-- The claim's own order, over nothing but what can be claimed.
CREATE INDEX ol.index(job_ready) ON ol.job (queue, priority DESC, run_at, id) WHERE state = 'ready';
-- Jobs that one more lost worker would end: claimed apart from each other.
CREATE INDEX ol.index(job_last_life) ON ol.job (queue, priority DESC, run_at, id)
    WHERE state = 'ready' AND crashes > 0 AND crashes + 1 >= max_crashes;
CREATE INDEX ol.index(job_due) ON ol.job (run_at, id) WHERE state = 'scheduled';
CREATE INDEX ol.index(job_lease) ON ol.job (lease_until) WHERE state = 'running';
CREATE INDEX ol.index(job_ended) ON ol.job (finished_at) WHERE state IN ('succeeded', 'cancelled');
CREATE INDEX ol.index(job_dead) ON ol.job (id) WHERE state = 'dead';
CREATE INDEX ol.index(job_expiry) ON ol.job (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready');
CREATE UNIQUE INDEX ol.index(job_key) ON ol.job (tenant, queue, key) WHERE key IS NOT NULL;

-- One row for each attempt that did not succeed at once; the fence names the claim.
CREATE TABLE ol.attempt (
    job TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker TEXT,
    outcome TEXT NOT NULL,
    error TEXT,
    started_at REAL,
    finished_at REAL NOT NULL,
    PRIMARY KEY (job, fence)
);

-- Progress, logs and what operators did. `seq` orders a job's events as they were accepted.
-- What an attempt said has a number under its claim, so that what is sent again is kept once.
CREATE TABLE ol.event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT,
    attempt INTEGER,
    fence INTEGER,
    n INTEGER,
    kind TEXT NOT NULL,
    data TEXT,
    at REAL NOT NULL
);
CREATE INDEX ol.index(event_job) ON ol.event (job, seq);
CREATE UNIQUE INDEX ol.index(event_said) ON ol.event (job, fence, n) WHERE n IS NOT NULL;

CREATE TABLE ol.worker (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    queues TEXT,
    tasks TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    running INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL CHECK (state IN ('working', 'draining')),
    version TEXT NOT NULL,
    lease REAL NOT NULL,
    started_at REAL NOT NULL,
    seen_at REAL NOT NULL,
    -- Whether it holds a locked file; without one, its leases alone speak.
    proof TEXT
);

CREATE TABLE ol.queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    changed_at REAL NOT NULL
);

-- Recurring maintenance: any process may do it, one does, and the row says how it went.
CREATE TABLE ol.duty (
    name TEXT NOT NULL PRIMARY KEY,
    every REAL NOT NULL DEFAULT 60, -- seconds
    next_at REAL NOT NULL,
    worker TEXT,
    succeeded_at REAL,
    found INTEGER NOT NULL DEFAULT 0,
    healed INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    error TEXT
);
