-- Flows: who waits for whom, and which jobs belong together. Durable steps.

ALTER TABLE ol.job ADD COLUMN flow TEXT;
-- A part of a flow whose jobs fail together.
ALTER TABLE ol.job ADD COLUMN team TEXT;
ALTER TABLE ol.job ADD COLUMN needs TEXT NOT NULL DEFAULT 'succeeded'
    CHECK (needs IN ('succeeded', 'finished'));
-- How many of those that it comes after have still to end; of all, or of a quorum. What waits, waits
-- for something: nothing else would ever start it.
ALTER TABLE ol.job ADD COLUMN waits_for INTEGER NOT NULL DEFAULT 0
    CHECK (waits_for >= 0 AND (state <> 'waiting' OR waits_for > 0));
ALTER TABLE ol.job ADD COLUMN quorum INTEGER CHECK (quorum > 0);
-- Its end concerns others: followers, hooks, a team.
ALTER TABLE ol.job ADD COLUMN tied INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ol.job ADD COLUMN hooks TEXT;
-- It came after jobs that stood already, in somebody else's transaction: to be counted once more.
ALTER TABLE ol.job ADD COLUMN late INTEGER NOT NULL DEFAULT 0;

CREATE INDEX ol.index(job_waiting) ON ol.job (id) WHERE state = 'waiting';
CREATE INDEX ol.index(job_late) ON ol.job (id) WHERE state = 'waiting' AND late;
CREATE INDEX ol.index(job_flow) ON ol.job (flow, id) WHERE flow IS NOT NULL;
CREATE INDEX ol.index(job_flow_live) ON ol.job (flow)
    WHERE flow IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');
CREATE INDEX ol.index(job_team_live) ON ol.job (team)
    WHERE team IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');

-- `follower` comes after `job`; `place` is the order in which it was told so.
CREATE TABLE ol.edge (
    job TEXT NOT NULL,
    follower TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (job, follower)
);
CREATE INDEX ol.index(edge_follower) ON ol.edge (follower, place);

-- A flow, or a part of one that fails together. How it stands is counted from its jobs.
CREATE TABLE ol.flow (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT,
    part_of TEXT,
    fail_after INTEGER CHECK (fail_after > 0),
    failed INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    cancelled_at REAL,
    reason TEXT,
    -- When all of its jobs had been cancelled: until then, whoever lives goes on with it.
    settled_at REAL
);
CREATE INDEX ol.index(flow_cancelled) ON ol.flow (cancelled_at)
    WHERE cancelled_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX ol.index(flow_parts) ON ol.flow (part_of) WHERE part_of IS NOT NULL;

-- What a step of a job gave, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    result TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, name)
);
