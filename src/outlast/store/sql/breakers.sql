-- fragment: breaker_columns
b.queue, b.task, b.opening, b.kind, ol.epoch(b.opened_at), b.probes

-- The probe under way is a running job: when its worker is lost, the probe ends with its claim. After a
-- minute it no longer counts: it may hang, or be a long job. A breaker whose opening is in the future was
-- opened before the clock stepped back, and its next probe was set then, too.
-- fragment: probe_due
(b.probe_at <= ol.now() OR b.opened_at > ol.now())
    AND NOT EXISTS (SELECT 1 FROM ol.job AS p WHERE p.started_at > ol.ago(60)
        AND p.id = b.probe_job AND p.fence = b.probe_fence AND p.state || '' = 'running')

-- fragment: probe_claimable
state = 'ready' AND queue = :queue AND ol.startable
        AND NOT EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND q.paused)
        AND ol.one_last_life AND task = :task

-- name: open_breaker
-- Open the breaker of a task in a queue; no row if it is open already.
INSERT INTO ol.breaker AS b (queue, task, opening, kind, message, opened_by, opened_at, probes,
    probe_at)
VALUES (:queue, :task, :opening, :kind, :message, :by, ol.now(), 0, ol.later(:wait))
ON CONFLICT (queue, task) DO NOTHING
RETURNING opening

-- name: open_breaker_now
-- The breaker of a task in a queue, if it is open, and whether it may be probed now.
SELECT ol.breaker_columns, ol.probe_due FROM ol.breaker AS b
WHERE b.queue = :queue AND b.task = :task

-- name: close_breaker
-- Close a breaker: manually, or only the opening under which a probe has succeeded.
DELETE FROM ol.breaker
WHERE queue = :queue AND (CAST(:task AS text) IS NULL OR task = :task)
    AND (CAST(:opening AS text) IS NULL OR opening = :opening)
RETURNING queue, task, kind, ol.epoch(opened_at)

-- name: close_breaker_without_jobs
-- Close the breaker of a task that has no job to probe with, now or soon. (Ready jobs are few or found at
-- once, running ones are few, and only the next scheduled ones are checked: there may be millions.)
DELETE FROM ol.breaker AS b
WHERE b.queue = :queue AND b.task = :task AND b.opening = :opening AND ol.probe_due
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j
        WHERE j.state = 'ready' AND j.queue = :queue AND j.task = :task)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j
        WHERE j.state = 'running' AND j.queue = :queue AND j.task = :task)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.state = 'scheduled'
        AND j.run_at <= ol.later(:soon) AND j.queue = :queue AND j.task = :task)
RETURNING queue, task, kind, ol.epoch(opened_at)

-- name: breaker_closings
-- The latest closings of breakers, newest first.
SELECT CAST(data AS text) FROM ol.event
WHERE job IS NULL AND kind = 'breaker-closed' AND at > ol.ago(:within)
ORDER BY seq DESC LIMIT :limit

-- name: take_probe
-- Take the right to probe, if it is free, due, and there is a job to probe with. The next probe is due after
-- the wait, whatever the result of this one. The probe begins after the opening, also where the clock
-- stepped back.
UPDATE ol.breaker AS b SET probes = b.probes + 1, probe_at = ol.later(:wait), probe_job = NULL,
    opened_at = CASE WHEN b.opened_at > ol.now() THEN ol.ago(0.01) ELSE b.opened_at END
WHERE b.queue = :queue AND b.task = :task AND b.opening = :opening AND b.probes = :probes
    AND ol.probe_due AND EXISTS (SELECT 1 FROM ol.job WHERE ol.probe_claimable)
RETURNING EXISTS (SELECT 1 FROM ol.queue AS q WHERE q.name = :queue AND q.limited)

-- name: claim_probe
-- Take the first ready job of one task as a probe.
-- postgres: locked in a CTE and updated by join, as in claim
WITH picked AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job WHERE ol.probe_claimable
    ORDER BY priority DESC, run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: one writer at a time needs no lock clause
UPDATE ol.job AS j SET ol.taken
WHERE j.id IN (SELECT id FROM ol.job WHERE ol.probe_claimable
    ORDER BY priority DESC, run_at, id LIMIT 1)
RETURNING ol.claim_columns

-- fragment: any_probe
SELECT id FROM (SELECT id FROM ol.job WHERE ol.probe_claimable
            ORDER BY priority DESC, run_at, id LIMIT :reach) AS near
        ORDER BY random() LIMIT 1

-- name: claim_any_probe
-- Take any of the next ready jobs of one task as a probe: where only the first ones cannot succeed, as with
-- jobs for one host among many, the others need not wait until each of these was tried.
-- postgres: as in claim_probe
WITH picked AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job WHERE id = (ol.any_probe) AND state = 'ready'
    FOR UPDATE SKIP LOCKED)
ol.take_picked
-- sqlite: as in claim_probe
UPDATE ol.job AS j SET ol.taken
WHERE j.id = (ol.any_probe)
RETURNING ol.claim_columns

-- name: set_probe
-- Record the claim that is the probe; without a claim, return the right to probe.
UPDATE ol.breaker
SET probe_job = ol.id(:job), probe_fence = :fence,
    probe_at = CASE WHEN CAST(:job AS text) IS NULL THEN ol.now() ELSE probe_at END,
    probes = CASE WHEN CAST(:job AS text) IS NULL THEN probes - 1 ELSE probes END
WHERE queue = :queue AND task = :task

-- name: probe_failed
-- A probe failed: the wait begins now, and its error is the latest.
UPDATE ol.breaker SET probe_at = ol.later(:wait), message = :message
WHERE queue = :queue AND task = :task AND opening = :opening AND probe_job = ol.id(:job)
    AND probe_fence = :fence
RETURNING probes

-- name: breakers
-- Every open breaker: why, since when, by whom, and when it is probed.
SELECT b.queue, b.task, b.kind, b.message, b.opened_by, ol.epoch(b.opened_at),
    ol.epoch(ol.now()) - ol.epoch(b.opened_at), b.probes, ol.epoch(b.probe_at) - ol.epoch(ol.now()),
    EXISTS (SELECT 1 FROM ol.job AS p
        WHERE p.id = b.probe_job AND p.fence = b.probe_fence AND p.state || '' = 'running')
FROM ol.breaker AS b ORDER BY b.queue, b.task
