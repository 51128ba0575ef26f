"""Ways out to other systems. What goes out is a job, so that retries, back-off, dead letter,
redrive, metrics and records are those of every job.

    webhook    somebody's server is told: what callers hold, and one attempt at a delivery
    message    what it says            post      one POST, with an end
    signing    who it is from          silence   what to do with one that does not answer
"""
