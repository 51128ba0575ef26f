-- The tables of the first release.
-- compatible from: 0

-- One row is one job for its whole life. No foreign keys, no triggers: this is the hot table.
CREATE TABLE ol.job (
    id uuid PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    queue text NOT NULL CHECK (queue <> ''),
    -- The group within a limited queue that shares limits and takes turns with the others.
    lane text CHECK (lane <> ''),
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
    -- The unique mode of its key, and its end; null: unique as long as this row is kept.
    unique_mode text CHECK (unique_mode IN ('waiting', 'active', 'period', 'debounce')),
    expires_at timestamptz,
    result json,
    error json,
    trace text,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    flow uuid,
    -- A part of a flow whose jobs fail together.
    team uuid,
    needs text NOT NULL DEFAULT 'succeeded' CHECK (needs IN ('succeeded', 'finished')),
    -- How many of its prerequisites have still to end; of all, or of a quorum. A waiting job must wait for
    -- something: nothing else would ever start it.
    waits_for integer NOT NULL DEFAULT 0
        CHECK (waits_for >= 0 AND (state <> 'waiting' OR waits_for > 0 OR wait_name IS NOT NULL)),
    quorum integer CHECK (quorum > 0),
    -- Its end affects others: dependents, hooks, a team.
    tied boolean NOT NULL DEFAULT false,
    hooks json,
    -- Its prerequisites existed already, and it was enqueued in a caller's own transaction: they must be
    -- recounted.
    unlinked boolean NOT NULL DEFAULT false,
    -- Its handler waits: the name of its wait, and when the wait is over, or times out. A sleeping job is
    -- scheduled; one that waits for a signal or for another job is waiting.
    wait_name text CHECK (wait_name <> ''),
    wait_until timestamptz,
    -- A handler of another job waits for the end of this one.
    awaited boolean NOT NULL DEFAULT false,
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
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The order of the claim, over claimable jobs only.
CREATE INDEX job_ready ON ol.job (queue, priority DESC, run_at, id) WHERE state = 'ready';
-- Jobs that one more lost worker would end: claimed apart from each other. (A sum overflows at the
-- largest number of crashes, and then no statement that makes such a job ready could succeed: so a
-- difference is compared.)
CREATE INDEX job_last_life ON ol.job (queue, priority DESC, run_at, id)
    WHERE state = 'ready' AND crashes > 0 AND crashes >= max_crashes - 1;
-- Only for limited queues: jobs without a lane have no entry in these. The heads of lanes, the slots
-- that are taken, and begun jobs that hold an ordered lane until they end
-- or wait. (Descending, so that a search for the next lane finds its last job first.)
CREATE INDEX job_lane_ready ON ol.job (queue DESC, lane DESC, priority DESC, run_at, id)
    WHERE state = 'ready' AND lane IS NOT NULL;
CREATE INDEX job_lane_running ON ol.job (queue, lane, started_at)
    WHERE state = 'running' AND lane IS NOT NULL;
CREATE INDEX job_lane_begun ON ol.job (queue, lane, id)
    WHERE lane IS NOT NULL AND fence > 0 AND state IN ('scheduled', 'ready') AND wait_name IS NULL;
CREATE INDEX job_lane_dead ON ol.job (queue, lane) WHERE state = 'dead' AND lane IS NOT NULL;
CREATE INDEX job_due ON ol.job (run_at, id) WHERE state = 'scheduled';
CREATE INDEX job_lease ON ol.job (lease_until) WHERE state = 'running';
CREATE INDEX job_ended ON ol.job (finished_at) WHERE state IN ('succeeded', 'cancelled');
-- Going dead is rare: these two indexes cost a job that succeeds nothing.
CREATE INDEX job_dead ON ol.job (id) WHERE state = 'dead';
CREATE INDEX job_dead_at ON ol.job (finished_at) WHERE state = 'dead';
CREATE INDEX job_expiry ON ol.job (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready');
CREATE UNIQUE INDEX job_key ON ol.job (tenant, queue, key)
    WHERE key IS NOT NULL AND unique_mode IS NULL;
CREATE INDEX job_waiting ON ol.job (id) WHERE state = 'waiting';
CREATE INDEX job_unlinked ON ol.job (id) WHERE state = 'waiting' AND unlinked;
-- Waits that time out.
CREATE INDEX job_wait_until ON ol.job (wait_until, id)
    WHERE state = 'waiting' AND wait_until IS NOT NULL;
-- One index for all queries on a flow's jobs: each version of a row costs an entry in each index.
CREATE INDEX job_flow ON ol.job (flow, state, id) WHERE flow IS NOT NULL;
CREATE INDEX job_team_live ON ol.job (team)
    WHERE team IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');

-- The archive: succeeded jobs that nothing else refers to, by the day (UTC) on which they ended. The duty
-- `archive` creates and drops its partitions, `past_YYYYMMDD`; there is no default one, which would be
-- searched whenever one is created. An id is in `job` or here, never in both. Rows are moved unchanged.
CREATE TABLE ol.past (LIKE ol.job INCLUDING DEFAULTS) PARTITION BY RANGE (finished_at);
CREATE INDEX past_id ON ol.past (id);

-- The number of archived jobs of each day and kind, so that no query counts them.
CREATE TABLE ol.past_count (
    day date NOT NULL, -- UTC
    tenant text NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    number bigint NOT NULL CHECK (number >= 0),
    PRIMARY KEY (day, tenant, queue, task)
) WITH (fillfactor = 70);

-- Unique keys: the last job inserted under each, and when calls of that key began to count. Whether that
-- job still blocks another one is read from its own row.
CREATE TABLE ol.unique_key (
    tenant text NOT NULL,
    queue text NOT NULL,
    key text NOT NULL,
    job uuid NOT NULL,
    taken_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, queue, key)
) WITH (fillfactor = 70);
CREATE INDEX ol.index(unique_key_job) ON ol.unique_key (job);

-- `follower` comes after `job`; `place` is the position in its list of prerequisites.
CREATE TABLE ol.edge (
    job uuid NOT NULL,
    follower uuid NOT NULL,
    place integer NOT NULL,
    PRIMARY KEY (job, follower)
);
CREATE INDEX edge_follower ON ol.edge (follower, place);

-- A flow, or a part of one that fails together. Its state is counted from its jobs.
CREATE TABLE ol.flow (
    id uuid PRIMARY KEY,
    name text,
    part_of uuid,
    fail_after integer CHECK (fail_after > 0),
    failed integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    cancelled_at timestamptz,
    reason text,
    -- When all of its jobs had been cancelled: until then, any worker continues.
    settled_at timestamptz,
    -- The idempotency key of a whole flow, a digest of its calls, and the ids of its jobs in the order
    -- in which they were enqueued.
    tenant text,
    key text,
    shape text,
    jobs json
);
CREATE INDEX flow_cancelled ON ol.flow (cancelled_at)
    WHERE cancelled_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX flow_parts ON ol.flow (part_of) WHERE part_of IS NOT NULL;
CREATE UNIQUE INDEX flow_key ON ol.flow (tenant, key) WHERE key IS NOT NULL;

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
CREATE INDEX attempt_ended ON ol.attempt (finished_at);
CREATE INDEX attempt_crashed ON ol.attempt (finished_at) WHERE outcome = 'crashed';

-- The result of a step of a job, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    result json NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (job, name)
);

-- The durable waits of a job, in the order in which they began; the fence names the claim whose attempt
-- ended with it. `subjects` are the names of signals, or the id of a job or flow; `awaits` is the job whose
-- end wakes this one. `result` is kept for later attempts, as that of a step is.
CREATE TABLE ol.wait (
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('sleep', 'signal', 'job', 'flow')),
    subjects json NOT NULL,
    awaits uuid,
    fence bigint NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz,
    ended_at timestamptz,
    outcome text CHECK (outcome IN ('signal', 'timed-out', 'ended')),
    -- The name of the signal that ended it, or the final state of the job.
    source text,
    result json,
    forms json, -- JSON schemas of typed signals by name, for people who answer
    PRIMARY KEY (job, name),
    CONSTRAINT wait_ended CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE INDEX wait_awaits ON ol.wait (awaits) WHERE awaits IS NOT NULL AND ended_at IS NULL;

-- Values sent to jobs, in the order of arrival: stored until a wait takes them, each once. `unseen`: sent in
-- a caller's own transaction, which must not lock the row of its job; after the commit, any worker checks
-- whether that job waits for it.
CREATE TABLE ol.signal (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    value json NOT NULL,
    key text CHECK (key <> ''),
    sent_by text,
    at timestamptz NOT NULL,
    taken_by text, -- the wait
    unseen boolean NOT NULL DEFAULT false
);
CREATE INDEX signal_job ON ol.signal (job, seq);
CREATE INDEX signal_kept ON ol.signal (job, seq) WHERE taken_by IS NULL;
CREATE UNIQUE INDEX signal_key ON ol.signal (job, name, key) WHERE key IS NOT NULL;
CREATE INDEX signal_unseen ON ol.signal (seq) WHERE unseen;

-- One-time links: the holder of one may send a signal, once. Only the address contains the secret; `hash` is
-- its SHA-256. `choices` are labels and values to choose from; without them, `form` is the JSON schema of the
-- value. `used_by` names the request that used it: a repeat after a lost response is the same use.
CREATE TABLE ol.signal_link (
    id uuid PRIMARY KEY,
    hash text NOT NULL UNIQUE,
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    key text CHECK (key <> ''),
    text text NOT NULL,
    choices json,
    form json,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    used_by text,
    revoked_at timestamptz
);
CREATE INDEX signal_link_job ON ol.signal_link (job, id);

-- The output that a job streams, in the order of its claims; `data` is an array of chunks, or null where the
-- output was cut off. `total` counts the bytes of the job's output up to here.
CREATE TABLE ol.stream (
    job uuid NOT NULL,
    fence bigint NOT NULL,
    n bigint NOT NULL,
    attempt integer NOT NULL,
    data json,
    total bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (job, fence, n)
);

-- Progress, logs and the actions of operators. `seq` orders a job's events as they were accepted. An
-- attempt's events are numbered under its claim, so that a repeated one is stored once.
-- `place` is the position for readers: sequence numbers become visible in order only if no transaction
-- commits late. Places are assigned to committed events by one process at a time: a reader that has
-- seen a place has seen, or can see, every lower one.
CREATE TABLE ol.event (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job uuid,
    attempt integer,
    fence bigint,
    n bigint,
    kind text NOT NULL,
    data json,
    at timestamptz NOT NULL,
    place bigint
);
-- (Events without a place come last, and are found, too.)
CREATE INDEX event_job ON ol.event (job, place);
CREATE UNIQUE INDEX event_said ON ol.event (job, fence, n) WHERE n IS NOT NULL;
CREATE UNIQUE INDEX event_place ON ol.event (place) WHERE place IS NOT NULL;
CREATE INDEX event_new ON ol.event (seq) WHERE place IS NULL;
-- Lost workers, and refused writes.
CREATE INDEX event_loss ON ol.event (seq) WHERE kind IN ('worker-lost', 'write-refused');

-- Counters, where a gap or a duplicate number would matter.
CREATE TABLE ol.counter (
    name text PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO ol.counter (name, value) VALUES ('place', 0);

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
    -- The server start under which it acquired its liveness lock; null: only its leases count.
    proof text,
    -- Whether an operator asked it to drain.
    drain boolean NOT NULL DEFAULT false,
    -- Why it cannot report outcomes; null: it can.
    trouble text
);

CREATE TABLE ol.queue (
    name text PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL,
    -- Maximum seconds that ended jobs are kept; null: the default.
    keep double precision CHECK (keep >= 0),
    -- Its jobs have lanes, and only the claim by lanes takes them.
    limited boolean NOT NULL DEFAULT false,
    -- Limits as the code declares them, and an operator's overrides; the columns below hold the limits
    -- in force.
    declared json,
    overrides json,
    running integer CHECK (running >= 0),
    lane_by text CHECK (lane_by = 'tenant'), -- lane of a job that names none; null: 'default'
    lane_running integer CHECK (lane_running >= 0),
    rate double precision CHECK (rate > 0), -- starts per second
    lane_rate double precision CHECK (lane_rate > 0),
    burst double precision CHECK (burst >= 1), -- tokens that a full bucket holds; null: one second's
    weights json,
    ordered boolean NOT NULL DEFAULT false,
    lane_batch integer CHECK (lane_batch > 0), -- jobs of an ordered lane, claimed together; null: one
    on_dead text CHECK (on_dead IN ('pass', 'block')),
    most_waiting integer CHECK (most_waiting > 0), -- maximum ready jobs; null: unlimited
    overflow text CHECK (overflow IN ('tell', 'refuse', 'drop_oldest', 'drop_new', 'wait')),
    quota integer CHECK (quota > 0), -- maximum jobs in a period; null: unlimited
    quota_period double precision CHECK (quota_period > 0), -- seconds
    lane_quota integer CHECK (lane_quota > 0),
    lane_quota_period double precision CHECK (lane_quota_period > 0)
);

-- The number of jobs that queues with quotas, and their lanes, have admitted in a period. The lane '' is the
-- whole queue.
CREATE TABLE ol.quota (
    queue text NOT NULL,
    lane text NOT NULL,
    starts_at double precision NOT NULL, -- the period: seconds since 1970
    used integer NOT NULL,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 50);

-- Jobs counted for a caller's transaction, until it settles them.
CREATE TABLE ol.quota_reservation (
    id uuid NOT NULL,
    queue text NOT NULL,
    lane text NOT NULL,
    number integer NOT NULL,
    starts_at double precision NOT NULL,
    reserved_at timestamptz NOT NULL,
    PRIMARY KEY (id, queue, lane)
);

-- Requests to cancel running jobs, from callers' own transactions, which must not lock the rows of jobs
-- that run meanwhile. After the commit, any worker applies them.
CREATE TABLE ol.cancel_request (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job uuid NOT NULL,
    data json NOT NULL,
    at timestamptz NOT NULL
);

-- How many more jobs a bounded queue takes before its ready ones are counted again. Separate from `queue`,
-- which every claim reads.
CREATE TABLE ol.admission (
    queue text NOT NULL PRIMARY KEY,
    room integer NOT NULL,
    waiting integer NOT NULL, -- at the count
    counted_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The state of a lane beside its jobs: whether it is paused, and its token bucket. The lane '' is the
-- whole queue; the queue '' pauses a tenant's lanes everywhere. No row: open, with a full bucket.
CREATE TABLE ol.lane (
    queue text NOT NULL,
    lane text NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    tokens double precision, -- at `filled_at`; null: full
    filled_at timestamptz,
    closed_for double precision, -- seconds until `filled_at`; null: open
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 50);

-- Circuit breakers that are open: one row for each task in a queue whose dependency is down.
CREATE TABLE ol.breaker (
    queue text NOT NULL,
    task text NOT NULL,
    opening text NOT NULL, -- its id: a breaker that opens again gets another
    kind text NOT NULL, -- the type of the error that opened it
    message text NOT NULL, -- the latest error's
    opened_by text NOT NULL, -- a worker
    opened_at timestamptz NOT NULL,
    probes integer NOT NULL DEFAULT 0, -- made so far
    probe_at timestamptz NOT NULL, -- earliest time of the next probe
    probe_job uuid, -- the claim that is the probe
    probe_fence bigint,
    PRIMARY KEY (queue, task)
);

-- Outboxes and sources that workers have announced, with the latest report on each.
CREATE TABLE ol.bridge (
    kind text NOT NULL CHECK (kind IN ('outbox', 'source')),
    name text NOT NULL,
    broker text NOT NULL, -- for people; without a password
    task text NOT NULL,
    queues json NOT NULL,
    received bigint NOT NULL DEFAULT 0, -- messages of a source
    stored bigint NOT NULL DEFAULT 0, -- new ones
    undecodable bigint NOT NULL DEFAULT 0,
    lag bigint, -- messages that wait at the broker; null: unknown
    error text, -- of the last pass; null: it succeeded
    message_at timestamptz, -- when messages were last received
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Recurring maintenance: any process may run a duty, one does, and the row has the result.
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

-- Schedules: each makes jobs by the clock.
CREATE TABLE ol.schedule (
    name text PRIMARY KEY CHECK (name <> ''),
    tenant text NOT NULL CHECK (tenant <> ''), -- of its jobs
    queue text NOT NULL CHECK (queue <> ''),
    task text NOT NULL,
    spec json NOT NULL, -- when it is due, and its policies
    job json NOT NULL, -- the columns that its jobs share
    code json, -- the declaration; null: created at run time
    changes json, -- changes at run time, over the declaration
    version bigint NOT NULL DEFAULT 1, -- grows with each change of its definition
    next_at timestamptz, -- its next tick; null: none
    last_tick timestamptz, -- the last handled tick
    last_job uuid,
    active json NOT NULL DEFAULT '[]', -- its jobs that may not have ended
    recent json NOT NULL DEFAULT '[]', -- its latest jobs
    fired_ticks json NOT NULL DEFAULT '[]', -- spans of handled ticks
    fired bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0, -- ticks
    skipped bigint NOT NULL DEFAULT 0, -- ticks
    late bigint NOT NULL DEFAULT 0, -- jobs
    note text, -- why a tick has no job
    noted_at timestamptz,
    paused_at timestamptz,
    paused_by text,
    pause_reason text,
    error text, -- why it cannot be fired
    announced_at timestamptz, -- by a worker whose code declares it
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL
);
CREATE INDEX schedule_due ON ol.schedule (next_at) WHERE paused_at IS NULL AND error IS NULL;

-- Statistics of one tenant's jobs in one queue in one span of time, and the depths at its end. The tenant ''
-- and the queue '' stand for all those that are too many to be kept separately.
CREATE TABLE ol.statistic (
    span integer NOT NULL CHECK (span > 0), -- seconds
    at bigint NOT NULL, -- its start, in seconds since 1970
    tenant text NOT NULL,
    queue text NOT NULL,
    succeeded bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0, -- attempts
    crashed bigint NOT NULL DEFAULT 0, -- attempts
    waits json NOT NULL, -- a histogram of wait times, and the sum of seconds
    runs json NOT NULL,
    depths json, -- by state; null: not counted
    PRIMARY KEY (span, at, tenant, queue)
) WITH (fillfactor = 70);

-- API tokens. Only the SHA-256 of a token is stored. A row is never removed, so that a service that was once
-- guarded by tokens stays guarded when the last of them is revoked.
CREATE TABLE ol.token (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    hash text NOT NULL UNIQUE,
    scopes json NOT NULL,
    tenant text CHECK (tenant <> ''), -- null: every tenant
    queues json, -- null: every queue
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    used_at timestamptz, -- to the minute
    revoked_at timestamptz
);

-- Browser sessions: the token of each, and its end.
CREATE TABLE ol.session (
    hash text PRIMARY KEY, -- of the cookie's value
    token uuid NOT NULL,
    created_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL
);

-- Completed steps of upgrades: an interrupted upgrade continues after them.
CREATE TABLE ol.migration_step (
    version integer NOT NULL,
    step integer NOT NULL,
    done_at timestamptz NOT NULL,
    PRIMARY KEY (version, step)
);

-- Signing secrets: one for all instances of the service, created by the first that needs it.
CREATE TABLE ol.secret (
    name text PRIMARY KEY,
    value text NOT NULL,
    created_at timestamptz NOT NULL
);

-- For autoscalers and dashboards of others, so its columns are stable: by queue, the jobs that a worker could
-- start now, the running ones, and how long the oldest has been due. A paused queue has no ready jobs.
-- (SQLite serves one machine: nothing is scaled there.)
CREATE VIEW ol.backlog AS
SELECT due.queue,
    sum(due.ready)::bigint AS ready,
    sum(due.running)::bigint AS running,
    coalesce(extract(epoch FROM now() - min(due.oldest)), 0)::double precision AS oldest_seconds
FROM (
    SELECT j.queue, count(*) AS ready, 0 AS running, min(j.run_at) AS oldest
    FROM ol.job AS j
    WHERE j.state = 'ready'
        AND NOT EXISTS (SELECT FROM ol.queue AS q WHERE q.name = j.queue AND q.paused)
    GROUP BY j.queue
    UNION ALL
    SELECT j.queue, count(*), 0, min(j.run_at)
    FROM ol.job AS j
    WHERE j.state = 'scheduled' AND j.run_at <= now()
        AND NOT EXISTS (SELECT FROM ol.queue AS q WHERE q.name = j.queue AND q.paused)
    GROUP BY j.queue
    UNION ALL
    SELECT j.queue, 0, count(*), NULL
    FROM ol.job AS j
    WHERE j.state = 'running'
    GROUP BY j.queue
) AS due
GROUP BY due.queue;
