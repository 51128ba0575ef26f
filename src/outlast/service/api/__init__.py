"""The endpoints, one file per group. Each has its routes as `ROUTES`."""

from __future__ import annotations

PREFIX = "/api/v1"
