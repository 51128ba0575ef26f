-- Who may call the service, and what its signatures are made with.

-- The token itself is not here: only what its SHA-256 is. A row is never removed, so that what was
-- once guarded by tokens stays so when the last of them is revoked.
CREATE TABLE ol.token (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL CHECK (name <> ''),
    hash TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    tenant TEXT CHECK (tenant <> ''), -- none: every tenant
    queues TEXT, -- none: every queue
    created_at REAL NOT NULL,
    expires_at REAL,
    used_at REAL, -- to the minute
    revoked_at REAL
);

-- One for all instances of the service, made by the first that needs it.
CREATE TABLE ol.secret (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    created_at REAL NOT NULL
);
