"""A PgBouncer in transaction mode between a program and its PostgreSQL."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from outlast import Unsupported

if TYPE_CHECKING:
    from stage import Stage

# Everything that is not here has its default, as in production.
CONFIGURATION = """\
[databases]
{name} = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
pidfile =
"""
NAME = "seed"


def pgbouncer(stage: Stage, url: str) -> str:
    """Start one before this database; its address. It ends with the stage."""
    from inside import folder
    from processes import answers, free_port
    from psycopg.conninfo import conninfo_to_dict

    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise Unsupported(reason="this program runs behind PgBouncer: install pgbouncer")
    known = conninfo_to_dict(url)
    server = {name: known.get(name) for name in ("host", "port", "user", "password", "dbname")}
    server["user"] = server["user"] or os.environ.get("PGUSER") or os.environ.get("USER")
    server["dbname"] = server["dbname"] or server["user"]
    port, file = free_port(), folder() / "pgbouncer.ini"
    file.touch(mode=0o600)  # it may hold a password
    file.write_text(
        CONFIGURATION.format(
            name=NAME,
            port=port,
            server=" ".join(f"{key}={quoted(value)}" for key, value in server.items() if value),
        )
    )
    as_user = ("-u", "nobody") if os.geteuid() == 0 else ()  # it refuses to run as root
    stage.start("pgbouncer", program, *as_user, file)
    stage.wait(lambda: answers(port), "pgbouncer answers", 10)
    return f"postgresql://{NAME}@127.0.0.1:{port}/{NAME}"


def quoted(value: object) -> str:
    text = str(value).replace("'", "''")
    return f"'{text}'"
