"""Remote workers: jobs go out over a stream, and what became of them comes back in reports.

tokens    what proves that a job was given to this worker: a claim, signed
frames    how offers look on the line
desk      the server as the owner of what it offers: claims, withdraws, heals
credit    what one worker holds, and how much more it can
stream    one worker's stream: offers as long as it can hold more
routes    the endpoints;  asides  steps and results
renewals  what workers hold on to, together
said      what workers say of their jobs;  reports  how it is taken
followups jobs that their handlers enqueued
"""
