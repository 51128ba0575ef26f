-- Browsers that are logged in: with whose token, and until when.
CREATE TABLE ol.session (
    hash TEXT PRIMARY KEY, -- of what the cookie holds
    token TEXT NOT NULL,
    created_at REAL NOT NULL,
    ends_at REAL NOT NULL
) WITHOUT ROWID;

-- Whether somebody told a worker to claim no more.
ALTER TABLE ol.worker ADD COLUMN drain INTEGER NOT NULL DEFAULT 0;

-- How many seconds what has ended in a queue is kept at the most; none: as long as all others.
ALTER TABLE ol.queue ADD COLUMN keep REAL CHECK (keep >= 0);
