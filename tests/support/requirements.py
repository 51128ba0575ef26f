"""What a machine may lack: its tests are skipped, or fail under OUTLAST_REQUIRE_ALL=1 (CI)."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn


def everything_is_required() -> bool:
    return os.environ.get("OUTLAST_REQUIRE_ALL") == "1"


def skip_or_fail(reason: str) -> NoReturn:
    """Skip this test, or fail it where everything is required."""
    import pytest  # here: what tests start imports this package too, and needs no pytest

    if everything_is_required():
        pytest.fail(f"{reason} (OUTLAST_REQUIRE_ALL=1)", pytrace=False)
    pytest.skip(reason)


def require_program(name: str) -> str:
    """The path of an installed program; without it the test is skipped or failed."""
    # Debian puts servers in /usr/sbin, which is not on everyone's PATH.
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=search) or skip_or_fail(f"{name} is not installed")
