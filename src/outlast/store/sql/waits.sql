-- fragment: no_wait
wait_name = NULL, wait_until = NULL

-- fragment: woken
state = 'ready', run_at = ol.now(), ol.no_wait

-- fragment: parked
j.state || '' = 'waiting' AND j.wait_name IS NOT NULL

-- A signal is there for the wait of a job, or the wait has been decided, but the response was lost before it
-- reached the handler.
-- fragment: signal_there
EXISTS (SELECT 1 FROM ol.wait AS w
        WHERE w.job = j.id AND w.name = j.wait_name AND (w.ended_at IS NOT NULL
            OR (w.kind = 'signal' AND EXISTS (SELECT 1 FROM ol.signal AS s
                WHERE s.job = w.job AND s.taken_by IS NULL
                    AND s.name IN (SELECT ol.each(w.subjects))))))

-- fragment: wait_columns
w.name, w.kind, CAST(w.subjects AS text), ol.epoch(w.since), ol.epoch(w.until), ol.epoch(w.ended_at),
    w.outcome, w.source

-- name: waits
-- The durable waits of a job, the newest first.
SELECT ol.wait_columns FROM ol.wait AS w WHERE w.job = ol.id(:job)
ORDER BY w.since DESC, w.name DESC LIMIT :limit

-- name: kept_waits
-- The durable waits of a job, or the one of a name, with what ended each, and whether its time is up.
SELECT w.name, w.kind, CAST(w.subjects AS text), ol.epoch(w.since), ol.epoch(w.until), w.outcome,
    w.source, CAST(w.result AS text), COALESCE(w.until <= ol.now(), false),
    ol.epoch(ol.now()) - ol.epoch(w.since)
FROM ol.wait AS w
WHERE w.job = ol.id(:job) AND (CAST(:name AS text) IS NULL OR w.name = :name)

-- name: current_wait
-- The current wait of a waiting job.
SELECT ol.wait_columns FROM ol.job AS j JOIN ol.wait AS w ON w.job = j.id AND w.name = j.wait_name
WHERE j.id = ol.id(:id)

-- name: current_waits
-- The current waits of the jobs whose handlers wait.
SELECT CAST(j.id AS text), ol.wait_columns
FROM ol.job AS j JOIN ol.wait AS w ON w.job = j.id AND w.name = j.wait_name
WHERE ol.in_ids(j.id, :ids)

-- name: wait_form
-- The JSON schemas of the signals that a waiting job waits for, by name.
SELECT CAST(w.forms AS text) FROM ol.job AS j JOIN ol.wait AS w ON w.job = j.id AND w.name = j.wait_name
WHERE j.id = ol.id(:id) AND w.forms IS NOT NULL

-- name: begin_waits
-- Store the waits that begin in this transaction. One that began before keeps its time-out.
INSERT INTO ol.wait AS w (job, name, kind, subjects, awaits, fence, since, until, forms)
SELECT j.id, t.name, t.kind, ol.json(t.subjects), t.awaits, t.fence, ol.now(), j.wait_until, ol.json(t.forms)
FROM ol.rows(job uuid, name text, kind text, subjects text, awaits uuid, fence bigint, forms text)
JOIN ol.job AS j ON j.id = t.job
WHERE j.wait_name = t.name
ON CONFLICT (job, name) DO UPDATE SET subjects = excluded.subjects, awaits = excluded.awaits,
    fence = excluded.fence, until = COALESCE(w.until, excluded.until), forms = excluded.forms

-- name: wake_signalled
-- Start the jobs that wait for a signal that is there. Their rows are locked already.
UPDATE ol.job AS j SET ol.woken
WHERE ol.in_ids(j.id, :ids) AND ol.parked AND ol.signal_there
RETURNING CAST(id AS text), queue

-- name: mark_awaited
-- Mark jobs whose end wakes others; returns those that have not ended.
UPDATE ol.job SET awaited = true, tied = true
WHERE ol.in_ids(id, :ids) AND state || '' IN ('waiting', 'scheduled', 'ready', 'running')
RETURNING CAST(id AS text)

-- name: wake_waiters
-- Start the jobs that wait for the end of these.
-- postgres: locked in the order of their ids, as everywhere
WITH held AS MATERIALIZED (
    SELECT j.id AS chosen FROM ol.wait AS w JOIN ol.job AS j ON j.id = w.job AND j.wait_name = w.name
    WHERE w.awaits IS NOT NULL AND w.ended_at IS NULL AND ol.in_ids(w.awaits, :ids) AND ol.parked
    ORDER BY j.id FOR UPDATE OF j)
UPDATE ol.job AS j SET ol.woken
FROM held WHERE j.id = held.chosen AND ol.parked
RETURNING CAST(id AS text), queue
-- sqlite: one writer at a time
UPDATE ol.job AS j SET ol.woken
WHERE j.id IN (
    SELECT o.id FROM ol.wait AS w JOIN ol.job AS o ON o.id = w.job AND o.wait_name = w.name
    WHERE w.awaits IS NOT NULL AND w.ended_at IS NULL AND ol.in_ids(w.awaits, :ids))
    AND ol.parked
RETURNING id, queue

-- name: wake_timed_out
-- Start jobs whose wait has timed out, the longest first; their handlers decide that.
-- postgres: SKIP LOCKED, so that workers share the work
WITH due AS MATERIALIZED (
    SELECT id AS chosen FROM ol.job
    WHERE state = 'waiting' AND wait_until IS NOT NULL AND wait_until <= ol.now()
    ORDER BY wait_until, id LIMIT :limit OFFSET :skip FOR UPDATE SKIP LOCKED)
UPDATE ol.job AS j SET ol.woken FROM due WHERE j.id = due.chosen
RETURNING CAST(id AS text), queue
-- sqlite: one writer at a time
UPDATE ol.job SET ol.woken
WHERE id IN (
    SELECT id FROM ol.job
    WHERE state = 'waiting' AND wait_until IS NOT NULL AND wait_until <= ol.now()
    ORDER BY wait_until, id LIMIT :limit OFFSET :skip)
RETURNING id, queue

-- fragment: awaited_ended
EXISTS (SELECT 1 FROM ol.wait AS w LEFT JOIN ol.job AS c ON c.id = w.awaits
        WHERE w.job = j.id AND w.name = j.wait_name AND w.awaits IS NOT NULL AND w.ended_at IS NULL
            AND (c.id IS NULL OR c.state IN ('succeeded', 'dead', 'cancelled')))

-- name: find_unwoken
-- Jobs that wait although a signal has been there for a while, or the awaited job has ended, or their
-- time-out has passed. (An unseen signal may have been committed just now.)
SELECT CAST(f.id AS text), ol.epoch(ol.now()) - ol.epoch(min(f.since)) FROM (
    SELECT j.id, s.at AS since FROM ol.signal AS s
    JOIN ol.job AS j ON j.id = s.job
    JOIN ol.wait AS w ON w.job = j.id AND w.name = j.wait_name
    WHERE s.taken_by IS NULL AND NOT s.unseen AND s.at < ol.ago(:late) AND ol.parked
        AND w.kind = 'signal' AND w.since < ol.ago(:late) AND s.name IN (SELECT ol.each(w.subjects))
    UNION ALL
    SELECT j.id, COALESCE(c.finished_at, w.since) FROM ol.wait AS w
    JOIN ol.job AS j ON j.id = w.job AND j.wait_name = w.name
    LEFT JOIN ol.job AS c ON c.id = w.awaits
    WHERE w.awaits IS NOT NULL AND w.ended_at IS NULL AND ol.parked
        AND (c.id IS NULL OR c.finished_at < ol.ago(:late))
    UNION ALL
    SELECT j.id, j.wait_until FROM ol.job AS j
    WHERE j.state = 'waiting' AND j.wait_until IS NOT NULL AND j.wait_until < ol.ago(:late)) AS f
GROUP BY f.id ORDER BY f.id LIMIT :limit OFFSET :skip

-- name: wake_unwoken
-- Start the jobs whose wait can end now.
UPDATE ol.job AS j SET ol.woken
WHERE ol.in_ids(j.id, :ids) AND ol.parked
    AND (ol.signal_there OR ol.awaited_ended OR j.wait_until <= ol.now())
RETURNING CAST(id AS text)

-- fragment: claim_holds
j.id = ol.id(:job) AND j.fence = :fence AND j.worker IN (:worker, :offered_by)
    AND j.state || '' = 'running'

-- name: hold_claim
-- Lock the row of a claim that still holds.
-- postgres: no claim ends between this check and the end of the transaction
SELECT ol.epoch(ol.now()) FROM ol.job AS j WHERE ol.claim_holds FOR NO KEY UPDATE
-- sqlite: one writer at a time
SELECT ol.epoch(ol.now()) FROM ol.job AS j WHERE ol.claim_holds

-- fragment: wanted_signal
s.job = ol.id(:job) AND s.name IN (SELECT ol.each(:names))

-- name: first_signal
-- The signal that came first of those that a wait may take. If this is sent again because the response
-- was lost, the wait may have taken it already.
SELECT s.seq FROM ol.signal AS s
WHERE ol.wanted_signal AND COALESCE(s.taken_by, :name) = :name
ORDER BY s.seq LIMIT 1

-- fragment: next_signal
(SELECT s.seq FROM ol.signal AS s WHERE ol.wanted_signal AND s.taken_by IS NULL ORDER BY s.seq LIMIT 1)

-- The claim holds, and nothing has ended the wait. A statement before this one has locked the job's row,
-- so that neither changes meanwhile.
-- fragment: may_take
EXISTS (SELECT 1 FROM ol.job AS j WHERE ol.claim_holds)
    AND NOT EXISTS (SELECT 1 FROM ol.wait AS e
        WHERE e.job = ol.id(:job) AND e.name = :name AND e.ended_at IS NOT NULL)

-- name: record_taken
-- Record the signal that a wait takes.
INSERT INTO ol.event (job, attempt, kind, data, at)
SELECT ol.id(:job), NULL, 'wait', ol.json(:data), ol.now()
WHERE ol.next_signal IS NOT NULL AND ol.may_take

-- name: take_signal
-- Take the signal that came first, for a wait.
UPDATE ol.signal SET taken_by = :name WHERE seq = ol.next_signal AND ol.may_take

-- name: end_by_signal
-- Store that the signal which a wait has just taken ended it.
INSERT INTO ol.wait AS w (job, name, kind, subjects, fence, since, ended_at, outcome, source, result)
SELECT s.job, :name, 'signal', ol.json(:names), :fence, ol.now(), ol.now(), 'signal', s.name, s.value
FROM ol.signal AS s
WHERE s.job = ol.id(:job) AND s.taken_by = :name
    AND EXISTS (SELECT 1 FROM ol.job AS j WHERE ol.claim_holds)
ol.wait_end, CAST(result AS text)

-- name: take_signal_of_claim
-- The four statements hold_claim, record_taken, take_signal and end_by_signal as one, and what the last
-- returns. A wait that another transaction ends meanwhile is not ended again.
-- postgres only: fused there, which saves parsing, planning and the driver's time
WITH held AS MATERIALIZED (
    SELECT j.id AS job FROM ol.job AS j WHERE ol.claim_holds FOR NO KEY UPDATE),
found AS MATERIALIZED (
    SELECT s.seq, s.name, s.value FROM ol.signal AS s
    WHERE s.job = (SELECT held.job FROM held) AND s.taken_by IS NULL
        AND s.name IN (SELECT ol.each(:names))
    ORDER BY s.seq LIMIT 1 FOR UPDATE), -- another wait may have taken it since this statement began
ended AS (
    INSERT INTO ol.wait AS w (job, name, kind, subjects, fence, since, ended_at, outcome, source, result)
    SELECT held.job, :name, 'signal', ol.json(:names), :fence, ol.now(), ol.now(), 'signal', found.name,
        found.value
    FROM held, found
    ol.wait_end, CAST(result AS text) AS value),
taken AS (
    UPDATE ol.signal AS s SET taken_by = :name FROM found, ended WHERE s.seq = found.seq)
INSERT INTO ol.event (job, attempt, kind, data, at)
SELECT ol.id(:job), NULL, 'wait', ol.json(:data), ol.now() FROM ended
RETURNING (SELECT ended.source FROM ended), (SELECT ended.value FROM ended)

-- fragment: wait_end
ON CONFLICT (job, name) DO UPDATE SET ended_at = excluded.ended_at, outcome = excluded.outcome,
    source = excluded.source, result = excluded.result
    WHERE w.ended_at IS NULL
RETURNING source

-- name: end_wait
-- Store what ended a wait, once.
INSERT INTO ol.wait AS w (job, name, kind, subjects, fence, since, ended_at, outcome, source, result)
VALUES (ol.id(:job), :name, :kind, ol.json(:subjects), :fence, ol.now(), ol.now(), :outcome, :source,
    ol.json(:result))
ol.wait_end

-- name: reopen_waits
-- Redriven jobs wait again for what did not come in time; results of waits are kept, and so is the end of a
-- sleep.
DELETE FROM ol.wait
WHERE ol.in_ids(job, :ids) AND kind <> 'sleep' AND (ended_at IS NULL OR outcome = 'timed-out')

-- name: awaited_job
-- A job that a handler waits for.
SELECT CAST(j.id AS text), j.state, CAST(j.result AS text), CAST(j.error AS text)
FROM ol.job AS j WHERE j.id = ol.id(:id)

-- name: last_live_of_flow
-- The newest job of a flow that has not ended.
SELECT CAST(j.id AS text) FROM ol.job AS j
WHERE j.flow = ol.id(:id) AND j.flow IS NOT NULL
    AND j.state IN ('waiting', 'scheduled', 'ready', 'running')
ORDER BY j.id DESC LIMIT 1

-- name: prune_waits
-- Remove the waits of pruned jobs.
DELETE FROM ol.wait WHERE ol.in_ids(job, :ids)

-- name: waits_after
-- A page of jobs that have waits on record, and whether each still exists.
SELECT CAST(s.job AS text), EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job) FROM (
    SELECT DISTINCT job FROM ol.wait WHERE job > ol.id(:after) ORDER BY job LIMIT :limit) AS s
ORDER BY s.job

-- name: remove_lost_waits
-- Remove waits whose job is gone.
DELETE FROM ol.wait AS s
WHERE ol.in_ids(s.job, :ids)
    AND NOT EXISTS (SELECT 1 FROM ol.job AS j WHERE j.id = s.job)
RETURNING CAST(job AS text)
