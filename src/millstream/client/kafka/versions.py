"""The versions of each API that this client speaks.

An upper bound below what `protocol` knows has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (3, 11),  # see produce_messages
    1: (4, 12),  # see fetch_messages
    2: (1, 9),  # 10 has a timeout for remote storage
    3: (1, 12),
    8: (2, 8),  # 9 is for members of the new kind
    9: (1, 7),  # 8 asks for several groups at once
    10: (1, 3),  # 4 asks for several keys at once
    11: (2, 7),  # 9 lets leaders keep an assignment, which ours does not know
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 5),  # 6 tells of a group that is not there in another way
    16: (0, 5),
    17: (1, 1),
    18: (0, 0),  # the one that every broker answers
    19: (2, 7),
    20: (1, 5),  # 6 names topics by their ids
    22: (0, 4),  # 5 and more go with every end giving a new epoch, as do the next two
    24: (0, 3),
    26: (0, 4),
    32: (1, 4),
    35: (1, 4),
    36: (0, 0),
    37: (0, 3),
    42: (0, 2),
    44: (0, 1),
    65: (0, 0),
    66: (0, 1),  # 2 filters by a pattern, which we do not need
    69: (0, 1),
}
