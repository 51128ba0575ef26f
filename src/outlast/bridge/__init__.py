"""Ways out to other systems. What goes out is a job, so that retries, back-off, dead letter,
redrive, metrics and records are those of every job.

    webhook    tell somebody's server, by a signed POST
"""
