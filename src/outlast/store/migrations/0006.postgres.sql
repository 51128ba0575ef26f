-- Browsers that are logged in: with whose token, and until when.
CREATE TABLE ol.session (
    hash text PRIMARY KEY, -- of what the cookie holds
    token uuid NOT NULL,
    created_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL
);

-- Whether somebody told a worker to claim no more.
ALTER TABLE ol.worker ADD COLUMN drain boolean NOT NULL DEFAULT false;

-- How many seconds what has ended in a queue is kept at the most; none: as long as all others.
ALTER TABLE ol.queue ADD COLUMN keep double precision CHECK (keep >= 0);
