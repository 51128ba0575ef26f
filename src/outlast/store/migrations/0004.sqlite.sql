-- Where events stand for those who read them is their number here: there is one writer at a time, and
-- so numbers are committed in the order in which they are taken. PostgreSQL has more to do, and both
-- have the same tables.

CREATE TABLE ol.counter (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
);
