"""Server-side assignors: which member of a consumer group is to have which partition.

An assignor is a pure function of what the members subscribe to, what they are to have now, and how
many partitions topics have. The same input gives the same output, whatever the order of its maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.groups.assignors import range as range_assignor
from millstream.groups.assignors import uniform
from millstream.groups.assignors.subscription import Assignment, MemberSubscription

Assignor = Callable[[Mapping[str, MemberSubscription], Mapping[bytes, int]], Assignment]

ASSIGNORS: Mapping[str, Assignor] = {
    uniform.NAME: uniform.assign,
    range_assignor.NAME: range_assignor.assign,
}
DEFAULT_ASSIGNOR = uniform.NAME

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Assignment", "Assignor", "MemberSubscription"]
