-- Flows: who waits for whom, and which jobs belong together. Durable steps.

ALTER TABLE ol.job ADD COLUMN flow uuid;
-- A part of a flow whose jobs fail together.
ALTER TABLE ol.job ADD COLUMN team uuid;
ALTER TABLE ol.job ADD COLUMN needs text NOT NULL DEFAULT 'succeeded'
    CHECK (needs IN ('succeeded', 'finished'));
-- How many of those that it comes after have still to end; of all, or of a quorum. What waits, waits
-- for something: nothing else would ever start it.
ALTER TABLE ol.job ADD COLUMN waits_for integer NOT NULL DEFAULT 0
    CHECK (waits_for >= 0 AND (state <> 'waiting' OR waits_for > 0));
ALTER TABLE ol.job ADD COLUMN quorum integer CHECK (quorum > 0);
-- Its end concerns others: followers, hooks, a team.
ALTER TABLE ol.job ADD COLUMN tied boolean NOT NULL DEFAULT false;
ALTER TABLE ol.job ADD COLUMN hooks json;
-- It came after jobs that stood already, in somebody else's transaction: to be counted once more.
ALTER TABLE ol.job ADD COLUMN late boolean NOT NULL DEFAULT false;

CREATE INDEX job_waiting ON ol.job (id) WHERE state = 'waiting';
CREATE INDEX job_late ON ol.job (id) WHERE state = 'waiting' AND late;
-- One index for all that is asked of a flow's jobs: each version of a row costs an entry in each.
CREATE INDEX job_flow ON ol.job (flow, state, id) WHERE flow IS NOT NULL;
CREATE INDEX job_team_live ON ol.job (team)
    WHERE team IS NOT NULL AND state IN ('waiting', 'scheduled', 'ready', 'running');

-- `follower` comes after `job`; `place` is the order in which it was told so.
CREATE TABLE ol.edge (
    job uuid NOT NULL,
    follower uuid NOT NULL,
    place integer NOT NULL,
    PRIMARY KEY (job, follower)
);
CREATE INDEX edge_follower ON ol.edge (follower, place);

-- A flow, or a part of one that fails together. How it stands is counted from its jobs.
CREATE TABLE ol.flow (
    id uuid PRIMARY KEY,
    name text,
    part_of uuid,
    fail_after integer CHECK (fail_after > 0),
    failed integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    cancelled_at timestamptz,
    reason text,
    -- When all of its jobs had been cancelled: until then, whoever lives goes on with it.
    settled_at timestamptz
);
CREATE INDEX flow_cancelled ON ol.flow (cancelled_at)
    WHERE cancelled_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX flow_parts ON ol.flow (part_of) WHERE part_of IS NOT NULL;

-- What a step of a job gave, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    result json NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (job, name)
);
