"""Event streams: the events of a job, or of all jobs that a caller may see, as they occur.

    frames        encoding of an event, as a server-sent event or as a line of JSON
    subscriber    a subscriber: its position, and a bounded buffer
    broadcaster   reads the store for all subscribers; a notification only triggers a poll
    replay        the events of one subscriber, in order: history, then live, then the end
    stream        the response to a request
    live_stream   a response that reads for itself: starts and successes, or a flow
    opening       finds the job or flow of a request, and the position of its reader
    job_stream    the output of one job
    stream_feeds  reads the output of followed jobs once for all followers
    routes        the routes

An event's id is its position in the store (`ops.events`), so that a stream can be resumed anywhere.
"""
