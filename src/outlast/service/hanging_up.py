"""How a server of ours lets its answers hang up: an extension, in the words of ASGI. Others do not
have it, and keep the connection of a client that takes nothing until they find it dead."""

from __future__ import annotations

HANG_UP = "outlast.hang_up"  # called without arguments
