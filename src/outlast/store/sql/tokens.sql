-- fragment: valid
k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ol.now())

-- name: insert_token
-- Insert a token; idempotent.
INSERT INTO ol.token (id, name, hash, scopes, tenant, queues, created_at, expires_at)
VALUES (ol.id(:id), :name, :hash, ol.json(:scopes), :tenant, ol.json(:queues), ol.now(),
    ol.later(:expires_in))
ON CONFLICT DO NOTHING
RETURNING CAST(id AS text)

-- name: tokens
-- Every token, the newest first.
SELECT ol.token_columns FROM ol.token AS k ORDER BY k.id DESC LIMIT :limit

-- name: token
-- One token, valid or not.
SELECT ol.token_columns FROM ol.token AS k WHERE k.id = ol.id(:id)

-- name: token_by_hash
-- The token of this hash, if it is valid.
SELECT ol.token_columns FROM ol.token AS k WHERE k.hash = :hash AND ol.valid

-- name: valid_tokens
-- The tokens that are still valid.
SELECT CAST(k.id AS text) FROM ol.token AS k
WHERE ol.in_ids(k.id, :ids) AND ol.valid

-- name: live_token_hashes
-- The hashes of valid tokens, the most recently used or created first.
SELECT k.hash FROM ol.token AS k WHERE ol.valid
ORDER BY COALESCE(k.used_at, k.created_at) DESC LIMIT :limit

-- name: any_token
-- Whether any token was ever created: from then on, every call needs one.
SELECT EXISTS (SELECT 1 FROM ol.token)

-- name: use_token
-- Record the use of a token, at most once a minute.
UPDATE ol.token SET used_at = ol.now()
WHERE id = ol.id(:id) AND (used_at IS NULL OR used_at < ol.ago(60))

-- name: revoke_token
-- Revoke a token; no row if it was revoked before.
UPDATE ol.token SET revoked_at = ol.now() WHERE id = ol.id(:id) AND revoked_at IS NULL
RETURNING CAST(id AS text)

-- name: keep_secret
-- Store a secret, if there is none of this name.
INSERT INTO ol.secret (name, value, created_at) VALUES (:name, :value, ol.now())
ON CONFLICT DO NOTHING

-- name: secret
-- A secret by its name.
SELECT value FROM ol.secret WHERE name = :name
