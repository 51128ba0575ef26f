-- Durable steps.

-- What a step of a job gave, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job TEXT NOT NULL,
    name TEXT NOT NULL CHECK (name <> ''),
    result TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, name)
);
