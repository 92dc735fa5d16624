"""Which consumer gets a key."""

from __future__ import annotations

from collections import Counter

from millstream.subscriptions.lanes import ANY_LANE, Lanes

KEYS = [b"key-%d" % number for number in range(3000)]


def owners(lanes: Lanes) -> dict[bytes, int]:
    return {key: lanes.lane_of(key) for key in KEYS}


def test_without_consumers_all_is_in_one_lane() -> None:
    assert Lanes().lane_of(b"k") == ANY_LANE
    assert Lanes().lane_of(None) == ANY_LANE


def test_keys_are_spread_and_stay() -> None:
    lanes = Lanes()
    lanes.change([1, 2, 3, 4])
    found = owners(lanes)
    assert owners(lanes) == found
    counts = Counter(found.values())
    assert set(counts) == {1, 2, 3, 4}
    assert all(500 < count < 1000 for count in counts.values())


def test_only_keys_of_who_came_or_went_change_hands() -> None:
    lanes = Lanes()
    lanes.change([1, 2, 3])
    before = owners(lanes)
    lanes.change([1, 2, 3, 4])
    joined = owners(lanes)
    assert {joined[key] for key in KEYS if joined[key] != before[key]} == {4}
    lanes.change([1, 3, 4])
    left = owners(lanes)
    assert {joined[key] for key in KEYS if left[key] != joined[key]} == {2}


def test_messages_without_a_key_take_turns() -> None:
    lanes = Lanes()
    lanes.change([7, 8, 9])
    assert Counter(lanes.lane_of(None) for _ in range(30)) == {7: 10, 8: 10, 9: 10}
