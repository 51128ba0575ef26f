"""Remote workers: jobs go out over a stream, and what became of them comes back in reports.

tokens    what proves that a job was given to this worker: a claim, signed
frames    how offers look on the line
desk      the server as the owner of what it offers: claims, withdraws, heals
stream    one worker's stream: offers as long as it can hold more
routes    the endpoints;  reports  what workers say of their jobs;  asides  steps and results
"""
