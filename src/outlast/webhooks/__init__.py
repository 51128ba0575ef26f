"""Webhooks: HTTP deliveries as jobs, with the retries, dead letters and metrics of every job.

webhook          the `Webhook` callers hold, and the task that delivers a message
payload          the body: type, timestamp and data
delivery         one POST with a deadline, and what its response means
signing          signatures in the Standard Webhooks format
circuit_breaker  one request at a time to a destination that does not answer
"""
