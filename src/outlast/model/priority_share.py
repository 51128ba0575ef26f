"""The share of claims that goes to the longest due job, whatever its priority. Decisions only.

    claim   1   2   3  …  9   10   11  …  19   20   21  …
    takes   highest priority  │    highest     │
                     longest due     longest due

A claim that empties the queue delays no job: claims are counted while a queue has more jobs than
its workers take. Every ninth or tenth of these, at least a tenth, takes the jobs of the priority
whose first job has been due longest. So a job waits for the jobs that were due before it, and then
for ten times its share, however many jobs of a higher priority arrive.
"""

from __future__ import annotations

import math

# An irrational interval between these claims: the share falls on each of several lanes that take
# turns, and not on the same one every time.
_CLAIMS_APART = 9 + (math.sqrt(5) - 1) / 2


def takes_longest_due(claims: int) -> bool:
    """Whether the next claim of a queue, after `claims` counted ones, is for the longest due."""
    return int((claims + 1) / _CLAIMS_APART) > int(claims / _CLAIMS_APART)
