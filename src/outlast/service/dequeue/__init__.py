"""Remote workers: jobs are offered over a stream, and their outcomes are reported.

The wire format is in `outlast.protocol`. In reading order:

    task_tokens    prove that a job was offered to this worker: a claim, signed
    dispatcher     the server as the owner of its offers: claims, withdraws, reclaims
    offer_book     all offers, by claim
    credit         the jobs that one worker holds, and how many more it can accept
    worker_info    the registration of a remote worker
    stream         one worker's stream: offers as long as it can hold more
    long_poll      the same offers in one response; polling_workers: workers between two polls
    routes         the endpoints; step_routes: steps and prerequisites
    renewals       renewals of many workers in one statement
    report_models  reports and responses, validated
    report_batch   applies the reports of one call
    followups      jobs that handlers enqueued
"""
