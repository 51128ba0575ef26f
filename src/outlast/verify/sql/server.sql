-- postgres only: SQLite has no server, and whoever has begun to write is alone

-- name: await_rival
-- Wait, with what this transaction holds, until somebody waits for it; for two seconds at the most.
-- Who is there is read once; for whom each waits is asked again and again, and `times` stands there
-- because no plan may then keep the first answer.
WITH RECURSIVE look (times, met) AS (
    SELECT 0, false
    UNION ALL
    SELECT times + 1, pg_sleep(0.005) IS NOT NULL AND EXISTS (
        SELECT 1 FROM pg_stat_activity AS a
        WHERE pg_backend_pid() = ANY (pg_blocking_pids(a.pid + 0 * times)))
    FROM look WHERE NOT met AND times < 400)
SELECT max(times) AS times FROM look

-- name: server_port
-- Which of several servers answers, by the port of this very connection.
SELECT inet_server_port()
