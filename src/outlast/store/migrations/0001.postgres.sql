-- Jobs, their attempts and events; workers, queues, duties.

-- One row is one job for its whole life. No foreign keys, no triggers: this is the hot table.
CREATE TABLE ol.job (
    id uuid PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    queue text NOT NULL CHECK (queue <> ''),
    task text NOT NULL,
    args json NOT NULL,
    state text NOT NULL CHECK (state IN
        ('waiting', 'scheduled', 'ready', 'running', 'succeeded', 'dead', 'cancelled')),
    priority smallint NOT NULL CHECK (priority BETWEEN -100 AND 100),
    run_at timestamptz NOT NULL,
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    max_attempts integer NOT NULL CHECK (max_attempts > 0),
    max_crashes integer NOT NULL CHECK (max_crashes > 0),
    fence bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker text,
    lease_until timestamptz,
    cancelling boolean NOT NULL DEFAULT false,
    timeout double precision CHECK (timeout > 0),
    retry json,
    key text,
    expires_at timestamptz,
    result json,
    error json,
    trace text,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    -- An owner and a lease while it runs, and only then; a final job has an end, and only then.
    CONSTRAINT job_owned CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT job_owner CHECK (CASE
        WHEN state = 'running' THEN worker IS NOT NULL
        WHEN state IN ('waiting', 'scheduled', 'ready') THEN worker IS NULL
        ELSE true END),
    CONSTRAINT job_finished CHECK
        ((state IN ('succeeded', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_result CHECK (result IS NULL OR state = 'succeeded')
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The claim's own order, over nothing but what can be claimed.
CREATE INDEX job_ready ON ol.job (queue, priority DESC, run_at, id) WHERE state = 'ready';
-- Jobs that one more lost worker would end: claimed apart from each other.
CREATE INDEX job_last_life ON ol.job (queue, priority DESC, run_at, id)
    WHERE state = 'ready' AND crashes > 0 AND crashes + 1 >= max_crashes;
CREATE INDEX job_due ON ol.job (run_at, id) WHERE state = 'scheduled';
CREATE INDEX job_lease ON ol.job (lease_until) WHERE state = 'running';
CREATE INDEX job_ended ON ol.job (finished_at) WHERE state IN ('succeeded', 'cancelled');
CREATE INDEX job_dead ON ol.job (id) WHERE state = 'dead';
CREATE INDEX job_expiry ON ol.job (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready');
CREATE UNIQUE INDEX job_key ON ol.job (tenant, queue, key) WHERE key IS NOT NULL;

-- One row for each attempt that did not succeed at once; the fence names the claim.
CREATE TABLE ol.attempt (
    job uuid NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    worker text,
    outcome text NOT NULL,
    error json,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    PRIMARY KEY (job, fence)
);

-- Progress, logs and what operators did. `seq` orders a job's events as they were accepted.
-- What an attempt said has a number under its claim, so that what is sent again is kept once.
CREATE TABLE ol.event (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job uuid,
    attempt integer,
    fence bigint,
    n bigint,
    kind text NOT NULL,
    data json,
    at timestamptz NOT NULL
);
CREATE INDEX event_job ON ol.event (job, seq);
CREATE UNIQUE INDEX event_said ON ol.event (job, fence, n) WHERE n IS NOT NULL;

CREATE TABLE ol.worker (
    id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    queues json,
    tasks json NOT NULL,
    concurrency integer NOT NULL,
    running integer NOT NULL DEFAULT 0,
    state text NOT NULL CHECK (state IN ('working', 'draining')),
    version text NOT NULL,
    lease double precision NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    -- Under which start of the server its liveness lock was taken; without one, its leases alone speak.
    proof text
);

CREATE TABLE ol.queue (
    name text PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL
);

-- Recurring maintenance: any process may do it, one does, and the row says how it went.
CREATE TABLE ol.duty (
    name text PRIMARY KEY,
    every double precision NOT NULL DEFAULT 60, -- seconds
    next_at timestamptz NOT NULL,
    worker text,
    succeeded_at timestamptz,
    found bigint NOT NULL DEFAULT 0,
    healed bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    error text
);
