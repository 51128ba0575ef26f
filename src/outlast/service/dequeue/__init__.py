"""Remote workers: jobs go out over a stream, and their outcomes come back in reports.

The wire format is in `outlast.protocol`. In reading order:

    task_tokens    prove that a job was offered to this worker: a claim, signed
    dispatcher     the server as the owner of its offers: claims, withdraws, reclaims
    offer_book     all offers, by claim
    credit         what one worker holds, and how many more jobs it can take
    worker_info    a remote worker as it registers
    stream         one worker's stream: offers as long as it can hold more
    long_poll      the same offers in one answer; polling_workers: those who poll, between polls
    routes         the endpoints; step_routes: steps and prerequisites
    renewals       renewals of many workers in one statement
    report_models  reports and answers, validated
    report_batch   how the reports of one call are applied
    followups      jobs that handlers enqueued
"""
