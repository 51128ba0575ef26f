-- name: begin_session
-- Insert a session; idempotent.
INSERT INTO ol.session (hash, token, created_at, ends_at)
VALUES (:hash, ol.id(:token), ol.now(), ol.later(:life))
ON CONFLICT DO NOTHING

-- name: clear_sessions
-- Delete expired sessions, and all but the newest of one token.
DELETE FROM ol.session
WHERE ends_at <= ol.now() OR hash IN (
    SELECT s.hash FROM ol.session AS s WHERE s.token = ol.id(:token)
    ORDER BY s.ends_at DESC, s.hash LIMIT 1000000 OFFSET :keep)

-- name: end_session
-- Delete a session.
DELETE FROM ol.session WHERE hash = :hash

-- name: token_of_session
-- The token of a session, if both are valid.
SELECT ol.token_columns FROM ol.session AS s JOIN ol.token AS k ON k.id = s.token
WHERE s.hash = :hash AND s.ends_at > ol.now() AND ol.valid

-- name: valid_sessions
-- The sessions that are still valid.
SELECT s.hash FROM ol.session AS s JOIN ol.token AS k ON k.id = s.token
WHERE s.hash IN (SELECT ol.each(:hashes)) AND s.ends_at > ol.now() AND ol.valid
