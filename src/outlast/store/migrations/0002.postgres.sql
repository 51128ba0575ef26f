-- Durable steps.

-- What a step of a job gave, kept across its attempts; the fence names the claim that kept it.
CREATE TABLE ol.step (
    job uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    result json NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (job, name)
);
