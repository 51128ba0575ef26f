-- The tables of the first release.
-- compatible from: 0

-- One row is one job for its whole life. Times are seconds since 1970, ids and JSON are text.
CREATE TABLE ol.job (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL CHECK (tenant <> ''),
    queue TEXT NOT NULL CHECK (queue <> ''),
    -- The group within a limited queue that shares limits and takes turns with the others.
    lane TEXT CHECK (lane <> ''),
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
    -- The unique mode of its key, and its end; null: unique as long as this row is kept.
    unique_mode TEXT CHECK (unique_mode IN ('waiting', 'active', 'period', 'debounce')),
    expires_at REAL,
    result TEXT,
    error TEXT,
    trace TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    flow TEXT,
    -- A part of a flow whose jobs fail together.
    team TEXT,
    needs TEXT NOT NULL DEFAULT 'succeeded' CHECK (needs IN ('succeeded', 'finished')),
    -- How many of its prerequisites have still to end; of all, or of a quorum. A waiting job must wait for
    -- something: nothing else would ever start it.
    waits_for INTEGER NOT NULL DEFAULT 0
        CHECK (waits_for >= 0 AND (state <> 'waiting' OR waits_for > 0 OR wait_name IS NOT NULL)),
    quorum INTEGER CHECK (quorum > 0),
    -- Its end affects others: dependents, hooks, a team.
    tied INTEGER NOT NULL DEFAULT 0,
    hooks TEXT,
    -- Its prerequisites existed already, and it was enqueued in a caller's own transaction: they must be
    -- recounted.
    unlinked INTEGER NOT NULL DEFAULT 0,
    -- Its handler waits: the name of its wait, and when the wait is over, or times out. A sleeping job is
    -- scheduled; one that waits for a signal or for another job is waiting.
    wait_name TEXT CHECK (wait_name <> ''),
    wait_until REAL,
    -- A handler of another job waits for the end of this one.
    awaited INTEGER NOT NULL DEFAULT 0,
    -- An owner and a lease while it runs, and only then; a final job has an end, and only then.
    CONSTRAINT job_owned CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT job_owner CHECK (CASE
        WHEN state = 'running' THEN worker IS NOT NULL
        WHEN state IN ('waiting', 'scheduled', 'ready') THEN worker IS NULL
        ELSE true END),
    CONSTRAINT job_finished CHECK
        ((state IN ('succeeded', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_result CHECK (result IS NULL OR state = 'succeeded'),
    CONSTRAINT job_wait CHECK (CASE
        WHEN wait_name IS NULL THEN wait_until IS NULL
        ELSE state IN ('waiting', 'scheduled') END)
);

-- The order of the claim, over claimable jobs only.
CREATE INDEX ol.index(job_ready) ON ol.job (queue, priority DESC, run_at, id) WHERE state = 'ready';
-- Jobs that one more lost worker would end: claimed apart from each other. (A sum overflows at the
-- largest number of crashes, and then no statement that makes such a job ready could succeed: so a
-- difference is compared.)
CREATE INDEX ol.index(job_last_life) ON ol.job (queue, priority DESC, run_at, id)
    WHERE state = 'ready' AND crashes > 0 AND crashes >= max_crashes - 1;
-- Only for limited queues: jobs without a lane have no entry in these. The heads of lanes, the slots
-- that are taken, and begun jobs that hold an ordered lane until they end
-- or wait.
CREATE INDEX ol.index(job_lane_ready) ON ol.job (queue, lane, priority DESC, run_at, id)
    WHERE state = 'ready' AND lane IS NOT NULL;
CREATE INDEX ol.index(job_lane_running) ON ol.job (queue, lane, started_at)
    WHERE state = 'running' AND lane IS NOT NULL;
CREATE INDEX ol.index(job_lane_begun) ON ol.job (queue, lane, id)
    WHERE lane IS NOT NULL AND fence > 0 AND state IN ('scheduled', 'ready') AND wait_name IS NULL;
CREATE INDEX ol.index(job_lane_dead) ON ol.job (queue, lane)
    WHERE state = 'dead' AND lane IS NOT NULL;
CREATE INDEX ol.index(job_due) ON ol.job (run_at, id) WHERE state = 'scheduled';
CREATE INDEX ol.index(job_lease) ON ol.job (lease_until) WHERE state = 'running';
CREATE INDEX ol.index(job_ended) ON ol.job (finished_at) WHERE state IN ('succeeded', 'cancelled');
-- Going dead is rare: these two indexes cost a job that succeeds nothing.
CREATE INDEX ol.index(job_dead) ON ol.job (id) WHERE state = 'dead';
CREATE INDEX ol.index(job_dead_at) ON ol.job (finished_at) WHERE state = 'dead';
CREATE INDEX ol.index(job_expiry) ON ol.job (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready');
CREATE UNIQUE INDEX ol.index(job_key) ON ol.job (tenant, queue, key)
    WHERE key IS NOT NULL AND unique_mode IS NULL;
CREATE INDEX ol.index(job_waiting) ON ol.job (id) WHERE state = 'waiting';
CREATE INDEX ol.index(job_unlinked) ON ol.job (id) WHERE state = 'waiting' AND unlinked;
-- Waits that time out.
CREATE INDEX ol.index(job_wait_until) ON ol.job (wait_until, id)
    WHERE state = 'waiting' AND wait_until IS NOT NULL;
CREATE INDEX ol.index(job_flow) ON ol.job (flow, id) WHERE flow IS NOT NULL;
CREATE INDEX ol.index(job_flow_live) ON ol.job (flow)
    WHERE flow IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');
CREATE INDEX ol.index(job_team_live) ON ol.job (team)
    WHERE team IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');

-- Unique keys: the last job inserted under each, and when calls of that key began to count. Whether that
-- job still blocks another one is read from its own row.
CREATE TABLE ol.unique_key (
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    job TEXT NOT NULL,
    taken_at REAL NOT NULL,
    PRIMARY KEY (tenant, queue, key)
) WITHOUT ROWID;
CREATE INDEX ol.index(unique_key_job) ON ol.unique_key (job);

-- `follower` comes after `job`; `place` is the position in its list of prerequisites.
CREATE TABLE ol.edge (
    job TEXT NOT NULL,
    follower TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (job, follower)
);
CREATE INDEX ol.index(edge_follower) ON ol.edge (follower, place);

-- A flow, or a part of one that fails together. Its state is counted from its jobs.
CREATE TABLE ol.flow (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT,
    part_of TEXT,
    fail_after INTEGER CHECK (fail_after > 0),
    failed INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    cancelled_at REAL,
    reason TEXT,
    -- When all of its jobs had been cancelled: until then, any worker continues.
    settled_at REAL,
    -- The idempotency key of a whole flow, a digest of its calls, and the ids of its jobs in the order
    -- in which they were enqueued.
    tenant TEXT,
    key TEXT,
    shape TEXT,
    jobs TEXT
);
CREATE INDEX ol.index(flow_cancelled) ON ol.flow (cancelled_at)
    WHERE cancelled_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX ol.index(flow_parts) ON ol.flow (part_of) WHERE part_of IS NOT NULL;
CREATE UNIQUE INDEX ol.index(flow_key) ON ol.flow (tenant, key) WHERE key IS NOT NULL;

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
CREATE INDEX ol.index(attempt_ended) ON ol.attempt (finished_at);
CREATE INDEX ol.index(attempt_crashed) ON ol.attempt (finished_at) WHERE outcome = 'crashed';

-- The result of a step of a job, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    result TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, name)
);

-- The durable waits of a job, in the order in which they began; the fence names the claim whose attempt
-- ended with it. `subjects` are the names of signals, or the id of a job or flow; `awaits` is the job whose
-- end wakes this one. `result` is kept for later attempts, as that of a step is.
CREATE TABLE ol.wait (
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('sleep', 'signal', 'job', 'flow')),
    subjects TEXT NOT NULL,
    awaits TEXT,
    fence INTEGER NOT NULL,
    since REAL NOT NULL,
    until REAL,
    ended_at REAL,
    outcome TEXT CHECK (outcome IN ('signal', 'timed-out', 'ended')),
    -- The name of the signal that ended it, or the final state of the job.
    source TEXT,
    result TEXT,
    forms TEXT, -- JSON schemas of typed signals by name, for people who answer
    PRIMARY KEY (job, name),
    CONSTRAINT wait_ended CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE INDEX ol.index(wait_awaits) ON ol.wait (awaits) WHERE awaits IS NOT NULL AND ended_at IS NULL;

-- Values sent to jobs, in the order of arrival: stored until a wait takes them, each once. `unseen`: sent in
-- a caller's own transaction, which must not lock the row of its job; after the commit, any worker checks
-- whether that job waits for it.
CREATE TABLE ol.signal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    value TEXT NOT NULL,
    key TEXT CHECK (key <> ''),
    sent_by TEXT,
    at REAL NOT NULL,
    taken_by TEXT, -- the wait
    unseen INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX ol.index(signal_job) ON ol.signal (job, seq);
CREATE INDEX ol.index(signal_kept) ON ol.signal (job, seq) WHERE taken_by IS NULL;
CREATE UNIQUE INDEX ol.index(signal_key) ON ol.signal (job, name, key) WHERE key IS NOT NULL;
CREATE INDEX ol.index(signal_unseen) ON ol.signal (seq) WHERE unseen;

-- One-time links: the holder of one may send a signal, once. Only the address contains the secret; `hash` is
-- its SHA-256. `choices` are labels and values to choose from; without them, `form` is the JSON schema of the
-- value. `used_by` names the request that used it: a repeat after a lost response is the same use.
CREATE TABLE ol.signal_link (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    key TEXT CHECK (key <> ''),
    text TEXT NOT NULL,
    choices TEXT,
    form TEXT,
    created_by TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    used_at REAL,
    used_by TEXT,
    revoked_at REAL
);
CREATE INDEX ol.index(signal_link_job) ON ol.signal_link (job, id);

-- The output that a job streams, in the order of its claims; `data` is an array of chunks, or null where the
-- output was cut off. `total` counts the bytes of the job's output up to here.
CREATE TABLE ol.stream (
    job TEXT NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    data TEXT,
    total INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, fence, n)
);

-- Progress, logs and the actions of operators. `seq` orders a job's events as they were accepted. An
-- attempt's events are numbered under its claim, so that a repeated one is stored once. For readers, an
-- event's position is its number: there is one writer at a time, so numbers are committed in order.
-- (PostgreSQL needs more; both have these tables.)
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
-- Lost workers, and refused writes.
CREATE INDEX ol.index(event_loss) ON ol.event (seq) WHERE kind IN ('worker-lost', 'write-refused');

-- Counters, where a gap or a duplicate number would matter.
CREATE TABLE ol.counter (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
);

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
    -- Whether it holds a locked file; without one, only its leases count.
    proof TEXT,
    -- Whether an operator asked it to drain.
    drain INTEGER NOT NULL DEFAULT 0,
    -- Why it cannot report outcomes; null: it can.
    trouble TEXT
);

CREATE TABLE ol.queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    changed_at REAL NOT NULL,
    -- Maximum seconds that ended jobs are kept; null: the default.
    keep REAL CHECK (keep >= 0),
    -- Its jobs have lanes, and only the claim by lanes takes them.
    limited INTEGER NOT NULL DEFAULT 0,
    -- Limits as the code declares them, and an operator's overrides; the columns below hold the limits
    -- in force.
    declared TEXT,
    overrides TEXT,
    running INTEGER CHECK (running >= 0),
    lane_by TEXT CHECK (lane_by = 'tenant'), -- lane of a job that names none; null: 'default'
    lane_running INTEGER CHECK (lane_running >= 0),
    rate REAL CHECK (rate > 0), -- starts per second
    lane_rate REAL CHECK (lane_rate > 0),
    burst REAL CHECK (burst >= 1), -- tokens that a full bucket holds; null: one second's
    weights TEXT,
    ordered INTEGER NOT NULL DEFAULT 0,
    lane_batch INTEGER CHECK (lane_batch > 0), -- jobs of an ordered lane, claimed together; null: one
    on_dead TEXT CHECK (on_dead IN ('pass', 'block')),
    most_waiting INTEGER CHECK (most_waiting > 0), -- maximum ready jobs; null: unlimited
    overflow TEXT CHECK (overflow IN ('tell', 'refuse', 'drop_oldest', 'drop_new', 'wait')),
    quota INTEGER CHECK (quota > 0), -- maximum jobs in a period; null: unlimited
    quota_period REAL CHECK (quota_period > 0), -- seconds
    lane_quota INTEGER CHECK (lane_quota > 0),
    lane_quota_period REAL CHECK (lane_quota_period > 0)
);

-- Requests to cancel running jobs, from callers' own transactions. After the commit, any worker applies
-- them.
CREATE TABLE ol.cancel_request (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL,
    data TEXT NOT NULL,
    at REAL NOT NULL
);

-- The number of jobs that queues with quotas, and their lanes, have admitted in a period. The lane '' is the
-- whole queue.
CREATE TABLE ol.quota (
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    starts_at REAL NOT NULL, -- the period: seconds since 1970
    used INTEGER NOT NULL,
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID;

-- Jobs counted for a caller's transaction, until it settles them.
CREATE TABLE ol.quota_reservation (
    id TEXT NOT NULL,
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    number INTEGER NOT NULL,
    starts_at REAL NOT NULL,
    reserved_at REAL NOT NULL,
    PRIMARY KEY (id, queue, lane)
) WITHOUT ROWID;

-- How many more jobs a bounded queue takes before its ready ones are counted again. Separate from `queue`,
-- which every claim reads.
CREATE TABLE ol.admission (
    queue TEXT NOT NULL PRIMARY KEY,
    room INTEGER NOT NULL,
    waiting INTEGER NOT NULL, -- at the count
    counted_at REAL NOT NULL
) WITHOUT ROWID;

-- The state of a lane beside its jobs: whether it is paused, and its token bucket. The lane '' is the
-- whole queue; the queue '' pauses a tenant's lanes everywhere. No row: open, with a full bucket.
CREATE TABLE ol.lane (
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    tokens REAL, -- at `filled_at`; null: full
    filled_at REAL,
    closed_for REAL, -- seconds until `filled_at`; null: open
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID;

-- Circuit breakers that are open: one row for each task in a queue whose dependency is down.
CREATE TABLE ol.breaker (
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    opening TEXT NOT NULL, -- its id: a breaker that opens again gets another
    kind TEXT NOT NULL, -- the type of the error that opened it
    message TEXT NOT NULL, -- the latest error's
    opened_by TEXT NOT NULL, -- a worker
    opened_at REAL NOT NULL,
    probes INTEGER NOT NULL DEFAULT 0, -- made so far
    probe_at REAL NOT NULL, -- earliest time of the next probe
    probe_job TEXT, -- the claim that is the probe
    probe_fence INTEGER,
    PRIMARY KEY (queue, task)
) WITHOUT ROWID;

-- Outboxes and sources that workers have announced, with the latest report on each.
CREATE TABLE ol.bridge (
    kind TEXT NOT NULL CHECK (kind IN ('outbox', 'source')),
    name TEXT NOT NULL,
    broker TEXT NOT NULL, -- for people; without a password
    task TEXT NOT NULL,
    queues TEXT NOT NULL,
    received INTEGER NOT NULL DEFAULT 0, -- messages of a source
    stored INTEGER NOT NULL DEFAULT 0, -- new ones
    undecodable INTEGER NOT NULL DEFAULT 0,
    lag INTEGER, -- messages that wait at the broker; null: unknown
    error TEXT, -- of the last pass; null: it succeeded
    message_at REAL, -- when messages were last received
    seen_at REAL NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Recurring maintenance: any process may run a duty, one does, and the row has the result.
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

-- Schedules: each makes jobs by the clock.
CREATE TABLE ol.schedule (
    name TEXT NOT NULL PRIMARY KEY CHECK (name <> ''),
    tenant TEXT NOT NULL CHECK (tenant <> ''), -- of its jobs
    queue TEXT NOT NULL CHECK (queue <> ''),
    task TEXT NOT NULL,
    spec TEXT NOT NULL, -- when it is due, and its policies
    job TEXT NOT NULL, -- the columns that its jobs share
    code TEXT, -- the declaration; null: created at run time
    changes TEXT, -- changes at run time, over the declaration
    version INTEGER NOT NULL DEFAULT 1, -- grows with each change of its definition
    next_at REAL, -- its next tick; null: none
    last_tick REAL, -- the last handled tick
    last_job TEXT,
    active TEXT NOT NULL DEFAULT '[]', -- its jobs that may not have ended
    recent TEXT NOT NULL DEFAULT '[]', -- its latest jobs
    fired_ticks TEXT NOT NULL DEFAULT '[]', -- spans of handled ticks
    fired INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0, -- ticks
    skipped INTEGER NOT NULL DEFAULT 0, -- ticks
    late INTEGER NOT NULL DEFAULT 0, -- jobs
    note TEXT, -- why a tick has no job
    noted_at REAL,
    paused_at REAL,
    paused_by TEXT,
    pause_reason TEXT,
    error TEXT, -- why it cannot be fired
    announced_at REAL, -- by a worker whose code declares it
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX ol.index(schedule_due) ON ol.schedule (next_at) WHERE paused_at IS NULL AND error IS NULL;

-- Statistics of one tenant's jobs in one queue in one span of time, and the depths at its end. The tenant ''
-- and the queue '' stand for all those that are too many to be kept separately.
CREATE TABLE ol.statistic (
    span INTEGER NOT NULL CHECK (span > 0), -- seconds
    at INTEGER NOT NULL, -- its start, in seconds since 1970
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    succeeded INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0, -- attempts
    crashed INTEGER NOT NULL DEFAULT 0, -- attempts
    waits TEXT NOT NULL, -- a histogram of wait times, and the sum of seconds
    runs TEXT NOT NULL,
    depths TEXT, -- by state; null: not counted
    PRIMARY KEY (span, at, tenant, queue)
) WITHOUT ROWID;

-- API tokens. Only the SHA-256 of a token is stored. A row is never removed, so that a service that was once
-- guarded by tokens stays guarded when the last of them is revoked.
CREATE TABLE ol.token (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL CHECK (name <> ''),
    hash TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    tenant TEXT CHECK (tenant <> ''), -- null: every tenant
    queues TEXT, -- null: every queue
    created_at REAL NOT NULL,
    expires_at REAL,
    used_at REAL, -- to the minute
    revoked_at REAL
);

-- Browser sessions: the token of each, and its end.
CREATE TABLE ol.session (
    hash TEXT PRIMARY KEY, -- of the cookie's value
    token TEXT NOT NULL,
    created_at REAL NOT NULL,
    ends_at REAL NOT NULL
) WITHOUT ROWID;

-- Completed steps of upgrades: an interrupted upgrade continues after them.
CREATE TABLE ol.migration_step (
    version INTEGER NOT NULL,
    step INTEGER NOT NULL,
    done_at TEXT NOT NULL,
    PRIMARY KEY (version, step)
) WITHOUT ROWID;

-- Signing secrets: one for all instances of the service, created by the first that needs it.
CREATE TABLE ol.secret (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    created_at REAL NOT NULL
);
