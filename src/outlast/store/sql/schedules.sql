-- name: schedule_clock
-- The database's clock.
SELECT ol.epoch(ol.now())

-- name: due_schedules
-- Due schedules of the caller's tasks, locked until they are fired.
-- postgres: SKIP LOCKED, so that workers share the work
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.paused_at IS NULL AND j.error IS NULL AND j.next_at <= ol.now()
    AND j.task IN (SELECT ol.each(:tasks))
ORDER BY j.next_at LIMIT :limit
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.paused_at IS NULL AND j.error IS NULL AND j.next_at <= ol.now()
    AND j.task IN (SELECT ol.each(:tasks))
ORDER BY j.next_at LIMIT :limit

-- name: next_due_schedule
-- When the next schedule of a caller's tasks is due.
SELECT ol.epoch(j.next_at) FROM ol.schedule AS j
WHERE j.paused_at IS NULL AND j.error IS NULL AND j.task IN (SELECT ol.each(:tasks))
    AND j.next_at IS NOT NULL
ORDER BY j.next_at LIMIT 1

-- name: schedule_runs
-- The states of earlier jobs of schedules.
SELECT CAST(id AS text), state, attempt, key FROM ol.job WHERE ol.in_ids(id, :ids)

-- name: advance_schedules
-- Fire schedules: each only if it is unchanged since it was read, so that no tick is fired twice.
UPDATE ol.schedule AS j
SET next_at = ol.moment(t.following),
    last_tick = ol.moment(t.tick),
    last_job = COALESCE(t.job, j.last_job),
    active = ol.json(t.active),
    recent = ol.json(t.recent),
    fired_ticks = ol.json(t.fired_ticks),
    fired = j.fired + t.fired,
    missed = j.missed + t.missed,
    skipped = j.skipped + t.skipped,
    late = j.late + t.late,
    note = COALESCE(t.note, j.note),
    noted_at = CASE WHEN t.note IS NULL THEN j.noted_at ELSE ol.now() END
FROM ol.rows(name text, seen double precision, version bigint, following double precision,
    tick double precision, job uuid, active text, recent text, fired_ticks text, fired integer,
    missed integer, skipped integer, late integer, note text)
WHERE j.name = t.name AND j.next_at = ol.moment(t.seen) AND j.version = t.version
    AND j.paused_at IS NULL
RETURNING ol.updated(name)

-- name: schedules_ahead
-- Schedules after a name that fired, or were changed, at a time in the future: the clock was ahead, or was
-- set back. Locked until they are rewound.
-- postgres: SKIP LOCKED, because a worker that holds one fires it
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.paused_at IS NULL AND j.error IS NULL AND j.name > :after
    AND (j.last_tick > ol.later(2) OR j.changed_at > ol.later(2))
ORDER BY j.name LIMIT :limit
FOR UPDATE SKIP LOCKED
-- sqlite: one writer at a time
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.paused_at IS NULL AND j.error IS NULL AND j.name > :after
    AND (j.last_tick > ol.later(2) OR j.changed_at > ol.later(2))
ORDER BY j.name LIMIT :limit

-- name: rewind_schedules
-- Set schedules back to ticks that never fired, each only if it is unchanged since it was read.
UPDATE ol.schedule AS j
SET next_at = ol.moment(t.next),
    last_tick = ol.moment(t.tick),
    fired_ticks = ol.json(t.fired_ticks),
    note = t.note,
    noted_at = ol.now(),
    version = j.version + 1,
    changed_at = ol.now()
FROM ol.rows(name text, version bigint, next double precision, tick double precision,
    fired_ticks text, note text)
WHERE j.name = t.name AND j.version = t.version AND j.paused_at IS NULL
    AND (j.next_at IS NULL OR j.next_at > ol.moment(t.next))
RETURNING ol.updated(name)

-- name: break_schedules
-- Mark schedules that cannot be fired, with the reason: they are left alone until they are changed.
UPDATE ol.schedule AS j SET error = t.error, changed_at = ol.now()
FROM ol.rows(name text, version bigint, error text)
WHERE j.name = t.name AND j.version = t.version AND j.error IS NULL
RETURNING ol.updated(name)

-- name: hold_schedules
-- Schedules by name, within the caller's access, locked until they are changed.
-- postgres: by name, so that two transactions that lock several wait in one direction only
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.name IN (SELECT ol.each(:names)) AND ol.in_reach
ORDER BY j.name FOR UPDATE
-- sqlite: one writer at a time
SELECT ol.schedule_columns FROM ol.schedule AS j
WHERE j.name IN (SELECT ol.each(:names)) AND ol.in_reach
ORDER BY j.name

-- name: insert_schedules
-- Insert schedules; one whose name is taken is left alone and not returned.
INSERT INTO ol.schedule ol.columns(
    name = t.name,
    tenant = t.tenant,
    queue = t.queue,
    task = t.task,
    spec = ol.json(t.spec),
    job = ol.json(t.job),
    code = ol.json(t.code),
    next_at = ol.moment(t.next),
    announced_at = CASE WHEN t.code IS NULL THEN NULL ELSE ol.now() END,
    created_at = ol.now(),
    changed_at = ol.now())
FROM ol.rows(name text, tenant text, queue text, task text, spec text, job text, code text,
    next double precision)
WHERE true
ON CONFLICT DO NOTHING
RETURNING name

-- name: change_schedules
-- Change schedules that are unchanged since they were read. The change may clear their errors.
UPDATE ol.schedule AS j
SET tenant = t.tenant,
    queue = t.queue,
    task = t.task,
    spec = ol.json(t.spec),
    job = ol.json(t.job),
    code = ol.json(t.code),
    changes = ol.json(t.changes),
    next_at = ol.moment(t.next),
    fired_ticks = ol.json(t.fired_ticks),
    announced_at = CASE WHEN t.announced > 0 THEN ol.now() ELSE j.announced_at END,
    version = j.version + 1,
    error = NULL,
    changed_at = ol.now()
FROM ol.rows(name text, version bigint, tenant text, queue text, task text, spec text, job text,
    code text, changes text, next double precision, fired_ticks text, announced integer)
WHERE j.name = t.name AND j.version = t.version
RETURNING ol.updated(name)

-- name: announce_schedules
-- Record that a deployment still declares these schedules, at most once an hour.
UPDATE ol.schedule AS j SET announced_at = ol.now()
WHERE j.name IN (SELECT ol.each(:names)) AND j.code IS NOT NULL AND ol.in_reach
    AND (announced_at IS NULL OR announced_at < ol.ago(3600) OR announced_at > ol.later(3600))
RETURNING name

-- name: pause_schedule
-- Pause a schedule; no row if it is paused already.
UPDATE ol.schedule SET paused_at = ol.now(), paused_by = :by, pause_reason = :reason,
    version = version + 1, changed_at = ol.now()
WHERE name = :name AND paused_at IS NULL
RETURNING name

-- name: resume_schedule
-- Resume a schedule, with its next tick; no row if it is not paused.
UPDATE ol.schedule SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, error = NULL,
    next_at = ol.moment(CAST(:next AS double precision)), fired_ticks = ol.json(:fired_ticks),
    version = version + 1, changed_at = ol.now()
WHERE name = :name AND (paused_at IS NOT NULL OR error IS NOT NULL)
RETURNING name

-- name: skip_ticks
-- Skip the next ticks of a schedule.
UPDATE ol.schedule SET next_at = ol.moment(CAST(:next AS double precision)),
    fired_ticks = ol.json(:fired_ticks), skipped = skipped + :skipped, note = :note, noted_at = ol.now(), version = version + 1,
    changed_at = ol.now()
WHERE name = :name
RETURNING name

-- name: add_schedule_run
-- Record a job that an operator started.
UPDATE ol.schedule SET last_job = ol.id(:job), active = ol.json(:active),
    recent = ol.json(:recent), fired = fired + 1
WHERE name = :name
RETURNING name

-- name: delete_schedule
-- Delete a schedule; its jobs stay.
DELETE FROM ol.schedule WHERE name = :name
RETURNING name

-- fragment: schedule_line
(SELECT r.state FROM ol.job AS r WHERE r.id = j.last_job), ol.schedule_columns

-- name: schedule
-- One schedule within the caller's access, and the state of its last job.
SELECT ol.schedule_line FROM ol.schedule AS j WHERE ol.in_reach AND j.name = :name

-- fragment: schedule_matches
ol.in_reach AND (CAST(:text AS text) IS NULL OR lower(j.name) LIKE :text ESCAPE '!')

-- name: schedules
-- A page of the schedules within the caller's access, by name, with the states of their last jobs.
SELECT ol.schedule_line FROM ol.schedule AS j
WHERE j.name > :after AND ol.schedule_matches
ORDER BY j.name LIMIT :limit

-- name: count_schedules
-- The number of schedules within the caller's access.
SELECT count(*) FROM ol.schedule AS j WHERE ol.schedule_matches

-- name: schedule_history
-- The latest jobs of a schedule, by their ids, newest first.
SELECT ol.job_columns FROM ol.job AS j
WHERE ol.in_ids(j.id, :ids) AND ol.in_reach
ORDER BY j.created_at DESC, j.id DESC

-- name: schedule_actions
-- The recorded actions on a schedule, newest first. (Its text is compared: PostgreSQL stores escapes that
-- it refuses to read.)
SELECT kind, CAST(data AS text), ol.epoch(at) FROM ol.event
WHERE job IS NULL AND kind LIKE 'schedule-%' AND CAST(data AS text) LIKE :data ESCAPE '!'
ORDER BY seq DESC LIMIT :limit
