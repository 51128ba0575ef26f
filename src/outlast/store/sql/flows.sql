-- fragment: counted_down
waits_for = CASE WHEN f.waits_for > c.ended THEN f.waits_for - c.ended ELSE 0 END,
    state = CASE
        WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.doomed
        WHEN f.waits_for > c.ended THEN 'waiting'
        WHEN f.run_at > ol.now() THEN 'scheduled'
        ELSE 'ready' END,
    finished_at = CASE WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.now() END,
    error = CASE WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.prerequisite_failed
        ELSE f.error END

-- fragment: doomed
CASE WHEN EXISTS (SELECT 1 FROM ol.flow AS w
        WHERE w.id IN (f.flow, f.team) AND w.cancelled_at IS NOT NULL)
        THEN 'cancelled' ELSE 'dead' END

-- fragment: prerequisite_unnamed
ol.json('{"type": "PrerequisiteFailed", "message": "a prerequisite did not succeed: explain says which", "traceback": ""}')

-- fragment: prerequisite_failed
CASE WHEN ol.has_foreign_prerequisite THEN ol.prerequisite_unnamed
    ELSE ol.json('{"type": "PrerequisiteFailed", "message": "' || c.why || '", "traceback": ""}') END

-- fragment: has_foreign_prerequisite
-- postgres: each by its key: statistics of tables that were just empty mislead the planner
EXISTS (SELECT 1 FROM ol.edge AS m
            WHERE m.follower = f.id AND (SELECT o.tenant <> f.tenant OR o.queue <> f.queue
                FROM ol.job AS o WHERE o.id = m.job)
            LIMIT 1 OFFSET 0)
-- sqlite: looks up by keys anyway
EXISTS (SELECT 1 FROM ol.edge AS m JOIN ol.job AS o ON o.id = m.job
            WHERE m.follower = f.id AND (o.tenant <> f.tenant OR o.queue <> f.queue)
            LIMIT 1 OFFSET 0)

-- fragment: why
min(CASE WHEN p.state <> 'succeeded'
        THEN 'its prerequisite ' || CAST(p.id AS text) || ' is ' || p.state END)

-- name: insert_flows
-- Insert flows; an existing one was sent before.
INSERT INTO ol.flow (id, name, part_of, fail_after, created_at)
SELECT t.id, t.name, t.part_of, t.fail_after, ol.now()
FROM ol.rows(id uuid, name text, part_of uuid, fail_after integer)
WHERE true
ON CONFLICT DO NOTHING

-- name: insert_keyed_flows
-- Insert flows that have keys; one whose id or key already exists is left alone and not returned.
INSERT INTO ol.flow ol.columns(id = t.id, name = t.name, part_of = t.part_of,
    fail_after = t.fail_after, created_at = ol.now(), tenant = t.tenant, key = t.key, shape = t.shape,
    jobs = ol.json(t.jobs))
FROM ol.rows(id uuid, name text, part_of uuid, fail_after integer, tenant text, key text,
    shape text, jobs text)
WHERE true
ON CONFLICT DO NOTHING
RETURNING CAST(id AS text)

-- name: flows_by_key
-- The flows that have these keys, with the ids of their jobs.
SELECT w.tenant, w.key, CAST(w.id AS text), w.shape, CAST(w.jobs AS text)
FROM ol.rows(tenant text, key text)
JOIN ol.flow AS w ON w.tenant = t.tenant AND w.key = t.key
WHERE w.key IS NOT NULL

-- name: insert_edges
-- Insert edges.
INSERT INTO ol.edge (job, follower, place)
SELECT t.job, t.follower, t.place
FROM ol.rows(job uuid, follower uuid, place integer)
WHERE true
ON CONFLICT DO NOTHING

-- name: hold_flows
-- Flows that jobs are to join: whether each is cancelled, and whether any of its jobs has not
-- ended. Locked against a concurrent cancel.
-- postgres: a share lock: joins do not wait for each other
SELECT CAST(w.id AS text), w.cancelled_at IS NOT NULL,
    EXISTS (SELECT 1 FROM ol.job AS j WHERE j.flow = w.id AND j.flow IS NOT NULL
        AND j.state IN ('waiting', 'scheduled', 'ready', 'running'))
FROM ol.flow AS w WHERE ol.in_ids(w.id, :ids) FOR SHARE OF w
-- sqlite: one writer at a time
SELECT CAST(w.id AS text), w.cancelled_at IS NOT NULL,
    EXISTS (SELECT 1 FROM ol.job AS j WHERE j.flow = w.id AND j.flow IS NOT NULL
        AND j.state IN ('waiting', 'scheduled', 'ready', 'running'))
FROM ol.flow AS w WHERE ol.in_ids(w.id, :ids)

-- name: hold_prerequisites
-- The states of existing prerequisites of new jobs, locked until those are inserted.
-- postgres: locked in the order of their ids, as everywhere
SELECT CAST(id AS text), state FROM ol.job WHERE ol.in_ids(id, :ids)
ORDER BY id FOR UPDATE
-- sqlite: one writer at a time
SELECT CAST(id AS text), state FROM ol.job WHERE ol.in_ids(id, :ids)

-- name: hold_prerequisites_of
-- Lock the prerequisites of these jobs: none of them ends meanwhile.
-- postgres: locked in the order of their ids, as everywhere; each looked up by its key, or tables
-- that were never analysed are read whole, again and again
SELECT CAST(id AS text) FROM ol.job
WHERE id = ANY (ARRAY(
    SELECT e.job FROM (SELECT ol.each_id(:ids) AS id) AS i,
        LATERAL (SELECT n.job FROM ol.edge AS n WHERE n.follower = i.id OFFSET 0) AS e))
ORDER BY id FOR UPDATE
-- sqlite: one writer at a time
SELECT CAST(id AS text) FROM ol.job
WHERE id IN (SELECT job FROM ol.edge WHERE ol.in_ids(follower, :ids))

-- name: read_prerequisites
-- The states of existing prerequisites of new jobs.
SELECT CAST(id AS text), state FROM ol.job WHERE ol.in_ids(id, :ids)

-- name: missing_prerequisites
-- The prerequisites of these jobs that are not among the jobs.
SELECT DISTINCT CAST(e.job AS text) FROM ol.edge AS e
WHERE ol.in_ids(e.follower, :ids) AND NOT EXISTS (SELECT 1 FROM ol.job AS p WHERE p.id = e.job)

-- name: mark_unlinked
-- Mark jobs with existing prerequisites that are not linked to them yet.
UPDATE ol.job SET unlinked = true WHERE ol.in_ids(id, :ids) AND state = 'waiting'

-- name: find_unlinked
-- A few unlinked jobs, and their prerequisites.
SELECT CAST(f.id AS text), CAST(e.job AS text)
FROM (SELECT id FROM ol.job WHERE state = 'waiting' AND unlinked
    ORDER BY id LIMIT :limit OFFSET :skip) AS f
LEFT JOIN ol.edge AS e ON e.follower = f.id

-- name: hold_unlinked
-- Lock those of them that are still unlinked.
-- postgres: locked in the order of their ids, as everywhere
SELECT CAST(id AS text) FROM ol.job
WHERE ol.in_ids(id, :ids) AND state || '' = 'waiting' AND unlinked ORDER BY id FOR UPDATE
-- sqlite: one writer at a time
SELECT CAST(id AS text) FROM ol.job
WHERE ol.in_ids(id, :ids) AND state = 'waiting' AND unlinked

-- name: mark_linked
-- Mark jobs as linked.
UPDATE ol.job SET unlinked = false WHERE ol.in_ids(id, :ids)

-- name: mark_has_dependents
-- Mark jobs as having dependents. An ended one is kept for them.
UPDATE ol.job SET tied = true WHERE ol.in_ids(id, :ids) AND NOT tied

-- name: join_followers
-- Add a prerequisite to the dependents of another job, at the next free positions.
-- The first must not have ended yet.
INSERT INTO ol.edge (job, follower, place)
SELECT t.id, e.follower,
    (SELECT max(place) FROM ol.edge AS o WHERE o.follower = e.follower) + t.place
FROM ol.rows(id uuid, beside uuid, place integer)
JOIN ol.edge AS e ON e.job = t.beside
JOIN ol.job AS f ON f.id = e.follower
WHERE f.state || '' = 'waiting' AND f.wait_name IS NULL
ON CONFLICT DO NOTHING
RETURNING CAST(job AS text), CAST(follower AS text)

-- name: wait_for_more
-- Add to the counts of jobs locked in this transaction. Jobs that ended in it are
-- still to be counted down, so a recount would be wrong; a quorum stays as it is.
UPDATE ol.job AS f SET waits_for = f.waits_for + t.more
FROM ol.rows(id uuid, more integer)
WHERE f.id = t.id AND f.state || '' = 'waiting' AND f.wait_name IS NULL AND f.quorum IS NULL

-- name: hold_followers
-- Lock the dependents of these jobs, and read their condition.
-- postgres: locked in the order of their ids, and looked up by their keys, as above
SELECT CAST(id AS text), needs FROM ol.job
WHERE id = ANY (ARRAY(
    SELECT e.follower FROM (SELECT ol.each_id(:ids) AS id) AS i,
        LATERAL (SELECT n.follower FROM ol.edge AS n WHERE n.job = i.id OFFSET 0) AS e))
    AND state || '' = 'waiting' AND wait_name IS NULL
ORDER BY id FOR UPDATE
-- sqlite: one writer at a time
SELECT CAST(id AS text), needs FROM ol.job
WHERE id IN (SELECT follower FROM ol.edge WHERE ol.in_ids(job, :ids))
    AND state = 'waiting' AND wait_name IS NULL

-- name: downstream
-- The transitive dependents of these jobs, and these jobs.
-- postgres: looked up by their keys, as above
WITH RECURSIVE later (id) AS (
    SELECT i.id FROM (SELECT ol.each_id(:ids) AS id) AS i
    UNION
    SELECT f.id
    FROM later AS d,
        LATERAL (SELECT e.follower FROM ol.edge AS e WHERE e.job = d.id OFFSET 0) AS e,
        LATERAL (SELECT j.id FROM ol.job AS j
            WHERE j.id = e.follower AND j.state || '' = 'waiting' AND j.wait_name IS NULL OFFSET 0) AS f)
SELECT CAST(id AS text) FROM later
-- sqlite: no LATERAL, and no need of it
WITH RECURSIVE later (id) AS (
    SELECT ol.each_id(:ids)
    UNION
    SELECT f.id FROM later AS d JOIN ol.edge AS e ON e.job = d.id
    JOIN ol.job AS f ON f.id = e.follower AND f.state = 'waiting' AND f.wait_name IS NULL)
SELECT CAST(id AS text) FROM later

-- name: dependents
-- Hooks and groups of ended jobs, and whether handlers wait for them.
SELECT CAST(id AS text), state, CAST(hooks AS text), CAST(team AS text), awaited
FROM ol.job
WHERE ol.in_ids(id, :ids) AND (hooks IS NOT NULL OR team IS NOT NULL OR awaited)

-- name: notify_followers
-- Jobs have ended in this transaction: count down their dependents, and start, or
-- end, those that no longer wait.
-- postgres: dependents are locked in the order of their ids. Each is looked up by its key (LATERAL,
-- ANY): on tables that were never analysed the planner would scan them
WITH c AS MATERIALIZED (
    SELECT e.follower, count(*) AS ended,
        count(CASE WHEN p.state <> 'succeeded' THEN 1 END) AS failed, ol.why AS why
    FROM (SELECT t.id, t.state FROM ol.rows(id uuid, state text)) AS p,
        LATERAL (SELECT n.follower FROM ol.edge AS n WHERE n.job = p.id OFFSET 0) AS e
    GROUP BY e.follower),
held AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE id = ANY (ARRAY(SELECT follower FROM c)) AND state || '' = 'waiting' AND wait_name IS NULL
    ORDER BY id FOR UPDATE)
UPDATE ol.job AS f SET ol.counted_down
FROM c
WHERE f.id = ANY (ARRAY(SELECT chosen FROM held)) AND f.id = c.follower
    AND f.state || '' = 'waiting' AND f.wait_name IS NULL
RETURNING CAST(id AS text), state, queue, tied
-- sqlite: one writer at a time
UPDATE ol.job AS f SET ol.counted_down
FROM (SELECT e.follower, count(*) AS ended,
        count(CASE WHEN p.state <> 'succeeded' THEN 1 END) AS failed, ol.why AS why
    FROM (SELECT t.id, t.state FROM ol.rows(id uuid, state text)) AS p
    JOIN ol.edge AS e ON e.job = p.id GROUP BY e.follower) AS c
WHERE f.id = c.follower AND f.state = 'waiting' AND f.wait_name IS NULL
RETURNING CAST(id AS text), state, queue, tied

-- name: fail_followers
-- End the transitive dependents that needed the success of these failed jobs, in one
-- statement, because a chain may be thousands long.
-- postgres: locked in the order of their ids, and looked up by their keys, as above; so are the reasons,
-- in one map, because a join of thousands might compare each row with each. (A map that does not fit in
-- work_mem would be read from disk for each row: with so many, the message refers to `explain`.)
WITH RECURSIVE lost (id) AS (
    SELECT i.id FROM (SELECT ol.each_id(:ids) AS id) AS i
    UNION
    SELECT f.id
    FROM lost AS d,
        LATERAL (SELECT e.follower FROM ol.edge AS e WHERE e.job = d.id OFFSET 0) AS e,
        LATERAL (SELECT j.id FROM ol.job AS j WHERE j.id = e.follower AND j.needs = 'succeeded'
            AND j.state || '' = 'waiting' AND j.wait_name IS NULL OFFSET 0) AS f),
c AS MATERIALIZED (
    SELECT e.follower, 'its prerequisite ' || min(CAST(e.job AS text)) || ' did not succeed' AS why
    FROM lost AS d,
        LATERAL (SELECT e.follower, e.job FROM ol.edge AS e WHERE e.job = d.id OFFSET 0) AS e
    GROUP BY e.follower),
held AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE id = ANY (ARRAY(SELECT follower FROM c)) AND needs = 'succeeded'
        AND state || '' = 'waiting' AND wait_name IS NULL
    ORDER BY id FOR UPDATE),
reasons AS MATERIALIZED (
    SELECT CASE WHEN count(*) <= 20000 THEN jsonb_object_agg(follower, why) END AS messages FROM c)
UPDATE ol.job AS f
SET state = ol.doomed, finished_at = ol.now(), error = CASE WHEN ol.has_foreign_prerequisite
        OR (SELECT messages IS NULL FROM reasons) THEN ol.prerequisite_unnamed
    ELSE json_build_object('type', 'PrerequisiteFailed', 'message',
        (SELECT messages ->> CAST(f.id AS text) FROM reasons), 'traceback', '') END
WHERE f.id = ANY (ARRAY(SELECT chosen FROM held)) AND f.state || '' = 'waiting' AND f.wait_name IS NULL
RETURNING CAST(id AS text), state, tied
-- sqlite: one writer at a time
WITH RECURSIVE lost (id) AS (
    SELECT ol.each_id(:ids)
    UNION
    SELECT f.id
    FROM lost AS d JOIN ol.edge AS e ON e.job = d.id JOIN ol.job AS f ON f.id = e.follower
    WHERE f.needs = 'succeeded' AND f.state = 'waiting' AND f.wait_name IS NULL)
UPDATE ol.job AS f
SET state = ol.doomed, finished_at = ol.now(), error = ol.prerequisite_failed
FROM (SELECT e.follower, 'its prerequisite ' || min(e.job) || ' did not succeed' AS why
    FROM lost AS d JOIN ol.edge AS e ON e.job = d.id GROUP BY e.follower) AS c
WHERE f.id = c.follower AND f.needs = 'succeeded' AND f.state = 'waiting' AND f.wait_name IS NULL
RETURNING CAST(id AS text), state, tied

-- fragment: recounted
waits_for = CASE WHEN c.needed > c.ended THEN c.needed - c.ended ELSE 0 END,
    state = CASE
        WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.doomed
        WHEN c.needed > c.ended THEN 'waiting'
        WHEN f.run_at > ol.now() THEN 'scheduled'
        ELSE 'ready' END,
    finished_at = CASE WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.now() END,
    error = CASE WHEN f.needs = 'succeeded' AND c.failed > 0 THEN ol.prerequisite_failed
        ELSE f.error END

-- name: recount
-- Recount the prerequisites of jobs locked in this transaction, and start, or end,
-- those that no longer wait. A missing prerequisite did not succeed. Returns those
-- that changed.
-- postgres: each row by its key, in this order. After a purge the statistics may say that there are
-- hardly any rows until the next ANALYZE: then all would be joined with all.
WITH c AS MATERIALIZED (SELECT w.id AS follower,
        CASE WHEN w.quorum < n.number THEN w.quorum ELSE n.number END AS needed, n.ended, n.failed,
        COALESCE(n.why, 'a prerequisite of its own is gone') AS why
    FROM (SELECT ol.each_id(:ids) AS id) AS i,
        LATERAL (SELECT j.id, j.quorum FROM ol.job AS j WHERE j.id = i.id OFFSET 0) AS w,
        LATERAL (SELECT count(*) AS number,
                count(CASE WHEN p.id IS NULL OR p.state IN ('succeeded', 'dead', 'cancelled')
                    THEN 1 END) AS ended,
                count(CASE WHEN p.id IS NULL OR p.state IN ('dead', 'cancelled') THEN 1 END) AS failed,
                ol.why AS why
            FROM (SELECT 1) AS one LEFT JOIN ol.edge AS e ON e.follower = w.id
                LEFT JOIN LATERAL (SELECT j.id, j.state FROM ol.job AS j WHERE j.id = e.job
                    OFFSET 0) AS p ON true) AS n)
UPDATE ol.job AS f SET ol.recounted
FROM c
WHERE ol.in_ids(f.id, :ids) AND f.id = c.follower AND f.state || '' = 'waiting' AND f.wait_name IS NULL
    AND (f.waits_for <> c.needed - c.ended OR (f.needs = 'succeeded' AND c.failed > 0))
RETURNING CAST(id AS text), state, queue, tied
-- sqlite: one row each, by their keys
UPDATE ol.job AS f SET ol.recounted
FROM (SELECT w.id AS follower,
        CASE WHEN w.quorum < count(*) THEN w.quorum ELSE count(*) END AS needed,
        count(CASE WHEN p.id IS NULL OR p.state IN ('succeeded', 'dead', 'cancelled')
            THEN 1 END) AS ended,
        count(CASE WHEN p.id IS NULL OR p.state IN ('dead', 'cancelled') THEN 1 END) AS failed,
        COALESCE(ol.why, 'a prerequisite of its own is gone') AS why
    FROM ol.job AS w LEFT JOIN ol.edge AS e ON e.follower = w.id
        LEFT JOIN ol.job AS p ON p.id = e.job
    WHERE ol.in_ids(w.id, :ids) GROUP BY w.id, w.quorum) AS c
WHERE f.id = c.follower AND f.state || '' = 'waiting' AND f.wait_name IS NULL
    AND (f.waits_for <> c.needed - c.ended OR (f.needs = 'succeeded' AND c.failed > 0))
RETURNING CAST(id AS text), state, queue, tied

-- name: failed_because_of
-- Jobs that are dead because one of these did not succeed, or one that is dead because of that.
-- postgres: looked up by their keys, as above
WITH RECURSIVE doomed (id) AS (
    SELECT i.id FROM (SELECT ol.each_id(:ids) AS id) AS i
    UNION
    SELECT f.id
    FROM doomed AS d,
        LATERAL (SELECT e.follower FROM ol.edge AS e WHERE e.job = d.id OFFSET 0) AS e,
        LATERAL (SELECT j.id FROM ol.job AS j
            WHERE j.id = e.follower AND j.state || '' IN ('dead', 'cancelled')
                AND CAST(j.error AS text) LIKE '%"PrerequisiteFailed"%' OFFSET 0) AS f)
SELECT CAST(id AS text) FROM doomed
-- sqlite: no LATERAL, and no need of it
WITH RECURSIVE doomed (id) AS (
    SELECT ol.each_id(:ids)
    UNION
    SELECT f.id FROM doomed AS d JOIN ol.edge AS e ON e.job = d.id
    JOIN ol.job AS f ON f.id = e.follower
    WHERE f.state IN ('dead', 'cancelled') AND CAST(f.error AS text) LIKE '%"PrerequisiteFailed"%')
SELECT CAST(id AS text) FROM doomed

-- name: fail_groups
-- Count failures in groups with fail_fast; at the limit, the rest is marked to be
-- cancelled. The failed job is named only to callers with access to its queue.
UPDATE ol.flow AS w
SET failed = w.failed + t.failed,
    reason = COALESCE(w.reason, CASE WHEN EXISTS (
            SELECT 1 FROM ol.job AS m JOIN ol.job AS o ON o.id = t.job
            WHERE m.team = w.id AND m.team IS NOT NULL
                AND m.state IN ('waiting', 'scheduled', 'ready', 'running')
                AND (m.tenant <> o.tenant OR m.queue <> o.queue))
        THEN 'a job of the same group did not succeed' ELSE t.reason END),
    cancelled_at = CASE WHEN w.failed + t.failed >= w.fail_after THEN ol.now() END
FROM ol.rows(id uuid, failed integer, reason text, job uuid)
WHERE w.id = t.id AND w.cancelled_at IS NULL

-- name: cancel_flow
-- Mark a flow as cancelled: no job joins it any more, and all of its jobs end.
UPDATE ol.flow SET cancelled_at = ol.now(), reason = :reason
WHERE id = ol.id(:id) AND cancelled_at IS NULL
RETURNING CAST(id AS text)

-- name: cancel_members
-- Cancel a few jobs of a cancelled flow, or, with :asking, ask their owners to stop. None of a flow
-- that was reopened since.
-- postgres: SKIP LOCKED: locked jobs come with the next page
WITH chosen AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE (flow = ol.id(:flow) OR team = ol.id(:flow))
        AND state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT cancelling
        AND (ol.boolean(:asking) OR state <> 'running')
        AND EXISTS (SELECT 1 FROM ol.flow AS w
            WHERE w.id = ol.id(:flow) AND w.cancelled_at IS NOT NULL)
    ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
UPDATE ol.job AS j
SET state = CASE WHEN j.state = 'running' THEN j.state ELSE 'cancelled' END, ol.no_wait,
    cancelling = (j.state = 'running'),
    finished_at = CASE WHEN j.state = 'running' THEN NULL ELSE ol.now() END,
    error = CASE WHEN j.state = 'running' THEN j.error ELSE ol.json(:error) END
FROM chosen WHERE j.id = chosen.chosen
RETURNING CAST(id AS text), state, tied
-- sqlite: one writer at a time; an OR would read the whole table
UPDATE ol.job AS j
SET state = CASE WHEN j.state = 'running' THEN j.state ELSE 'cancelled' END, ol.no_wait,
    cancelling = (j.state = 'running'),
    finished_at = CASE WHEN j.state = 'running' THEN NULL ELSE ol.now() END,
    error = CASE WHEN j.state = 'running' THEN j.error ELSE ol.json(:error) END
WHERE j.id IN (
    SELECT id FROM ol.job WHERE flow = ol.id(:flow) AND flow IS NOT NULL
        AND state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT cancelling
        AND (ol.boolean(:asking) OR state <> 'running')
    UNION
    SELECT id FROM ol.job WHERE team = ol.id(:flow) AND team IS NOT NULL
        AND state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT cancelling
        AND (ol.boolean(:asking) OR state <> 'running')
    LIMIT :limit)
    AND EXISTS (SELECT 1 FROM ol.flow AS w
        WHERE w.id = ol.id(:flow) AND w.cancelled_at IS NOT NULL)
RETURNING CAST(id AS text), state, tied

-- name: settle_flow
-- All jobs of a cancelled flow have ended or were asked to stop: mark the cancel as complete;
-- idempotent. Not if the flow was reopened.
UPDATE ol.flow
SET settled_at = CASE WHEN cancelled_at IS NOT NULL THEN COALESCE(settled_at, ol.now()) END
WHERE id = ol.id(:flow)
    AND (cancelled_at IS NULL OR (
        NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.flow = ol.id(:flow) AND j.flow IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT j.cancelling)
        AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.team = ol.id(:flow) AND j.team IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT j.cancelling)))
RETURNING CAST(id AS text)

-- name: unsettled_flows
-- Cancelled flows with jobs that may still run.
SELECT CAST(id AS text), reason FROM ol.flow
WHERE cancelled_at IS NOT NULL AND settled_at IS NULL
ORDER BY cancelled_at LIMIT :limit

-- name: flow
-- One flow.
SELECT CAST(id AS text), name, CAST(part_of AS text), reason, ol.epoch(created_at),
    ol.epoch(cancelled_at), key
FROM ol.flow WHERE id = ol.id(:id)

-- name: flow_counts
-- The jobs of a flow, counted by state.
SELECT state, count(*) FROM ol.job WHERE flow = ol.id(:id) AND flow IS NOT NULL GROUP BY state

-- name: flow_jobs
-- A page of a flow's jobs, in the order of enqueue.
SELECT ol.job_columns FROM ol.job AS j
WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL AND j.id > ol.id(:after)
ORDER BY j.id LIMIT :limit

-- name: flow_edges
-- The edges of a flow.
SELECT CAST(e.job AS text), CAST(e.follower AS text)
FROM ol.job AS j JOIN ol.edge AS e ON e.follower = j.id
WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL
ORDER BY e.follower, e.place LIMIT :limit

-- name: prerequisites
-- A page of a job's prerequisites, in the order given.
SELECT e.place, ol.job_columns
FROM (SELECT job, place FROM ol.edge
    WHERE follower = ol.id(:id) AND place > :place ORDER BY place LIMIT :limit) AS e
JOIN ol.job AS j ON j.id = e.job
ORDER BY e.place

-- name: prerequisites_in
-- The first few prerequisites of a job in certain states.
SELECT ol.job_columns
FROM ol.edge AS e JOIN ol.job AS j ON j.id = e.job
WHERE e.follower = ol.id(:id) AND j.state IN (SELECT ol.each(:states))
ORDER BY e.place LIMIT :limit

-- name: count_prerequisites
-- The number of a job's prerequisites.
SELECT count(*) FROM ol.edge WHERE follower = ol.id(:id)
