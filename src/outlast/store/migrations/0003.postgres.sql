-- Who may call the service, and what its signatures are made with.

-- The token itself is not here: only what its SHA-256 is. A row is never removed, so that what was
-- once guarded by tokens stays so when the last of them is revoked.
CREATE TABLE ol.token (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    hash text NOT NULL UNIQUE,
    scopes json NOT NULL,
    tenant text CHECK (tenant <> ''), -- none: every tenant
    queues json, -- none: every queue
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    used_at timestamptz, -- to the minute
    revoked_at timestamptz
);

-- One for all instances of the service, made by the first that needs it.
CREATE TABLE ol.secret (
    name text PRIMARY KEY,
    value text NOT NULL,
    created_at timestamptz NOT NULL
);
