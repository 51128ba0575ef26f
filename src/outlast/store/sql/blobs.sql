-- fragment: references
-- postgres: by size first, so that large values in the row are not read for this
CASE WHEN pg_column_size(j.args) < 300 AND CAST(j.args AS text) LIKE '["outlast:blob",%'
        THEN CAST(j.args AS text) END,
    CASE WHEN pg_column_size(j.result) < 300 AND CAST(j.result AS text) LIKE '["outlast:blob",%'
        THEN CAST(j.result AS text) END
-- sqlite: reads only the start of a text
CASE WHEN substr(args, 1, 16) = '["outlast:blob",' THEN args END,
    CASE WHEN substr(result, 1, 16) = '["outlast:blob",' THEN result END

-- name: referred
-- The references of jobs, and the fences under which running ones may still add some.
SELECT CAST(j.id AS text), CASE WHEN j.state = 'running' THEN j.fence END, ol.references
FROM ol.job AS j WHERE ol.in_ids(j.id, :ids)
