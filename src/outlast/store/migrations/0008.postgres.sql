-- Jobs that one more lost worker would end. A sum overflows at the largest number of crashes, and then
-- no statement that makes such a job ready could succeed: so a difference is compared.
DROP INDEX ol.old_index(job_last_life);
CREATE INDEX job_last_life ON ol.job (queue, priority DESC, run_at, id)
    WHERE state = 'ready' AND crashes > 0 AND crashes >= max_crashes - 1;
