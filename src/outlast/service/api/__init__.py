"""The endpoints of the API, one module per group, each with its `ROUTES`."""

from __future__ import annotations

PREFIX = "/api/v1"
