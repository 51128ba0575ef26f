"""Event streams: what is told of a job, or of all that a caller may see, as it comes.

    frames       how an event is spelled, as a server-sent event or as a line of JSON
    wanted       which events a subscriber wants and may see
    subscriber   one who follows: a bounded buffer, and where it stands
    feeder       reads the store for all of them; a wake-up only says "look"
    story        what one subscriber is told, in order: history, then live, then the end
    stream       the answer to a request: sends the story until somebody ends it
    endpoints    the routes

An event's id is its place in the store (`ops.events`), so that a stream can be resumed anywhere.
"""
