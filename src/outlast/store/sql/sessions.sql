-- name: begin_session
-- A browser logs in; sent again, it is in already.
INSERT INTO ol.session (hash, token, created_at, ends_at)
VALUES (:hash, ol.id(:token), ol.now(), ol.later(:life))
ON CONFLICT DO NOTHING

-- name: clear_sessions
-- Forget sessions that are over, and of one token all but the last so many.
DELETE FROM ol.session
WHERE ends_at <= ol.now() OR hash IN (
    SELECT s.hash FROM ol.session AS s WHERE s.token = ol.id(:token)
    ORDER BY s.ends_at DESC, s.hash LIMIT 1000000 OFFSET :keep)

-- name: end_session
-- A browser logs out.
DELETE FROM ol.session WHERE hash = :hash

-- name: token_of_session
-- The token that a session began with, if both are good.
SELECT ol.token_columns FROM ol.session AS s JOIN ol.token AS k ON k.id = s.token
WHERE s.hash = :hash AND s.ends_at > ol.now() AND ol.good

-- name: good_sessions
-- Those of the sessions that are good still.
SELECT s.hash FROM ol.session AS s JOIN ol.token AS k ON k.id = s.token
WHERE s.hash IN (SELECT ol.each(:hashes)) AND s.ends_at > ol.now() AND ol.good
