"""How the leader of a classic group shares out partitions: Kafka's rules `range` and `roundrobin`.

Invariant: every partition of a topic goes to exactly one of the members that want the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from millstream.client.kafka.places import Place

Wishes = Mapping[str, Collection[str]]
"""By member, the topics that it wants."""
Shares = dict[str, list[Place]]


def assign_ranges(wishes: Wishes, counts: Mapping[str, int]) -> Shares:
    """Of each topic, every member gets a run of neighbours."""
    shares: Shares = {member: [] for member in wishes}
    for topic, count in sorted(counts.items()):
        readers = sorted(member for member, topics in wishes.items() if topic in topics)
        if not readers:
            continue
        quota, extras = divmod(count, len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + quota + (place < extras)
            shares[member] += [(topic, number) for number in range(start, end)]
            start = end
    return shares


def assign_in_turns(wishes: Wishes, counts: Mapping[str, int]) -> Shares:
    """One partition after the other goes to the next member that wants its topic."""
    shares: Shares = {member: [] for member in wishes}
    members = sorted(wishes)
    turn = 0
    for topic, count in sorted(counts.items()):
        if not any(topic in wishes[member] for member in members):
            continue
        for number in range(count):
            while topic not in wishes[members[turn % len(members)]]:
                turn += 1
            shares[members[turn % len(members)]].append((topic, number))
            turn += 1
    return shares


ASSIGNORS: Mapping[str, Callable[[Wishes, Mapping[str, int]], Shares]] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turns,
}
"""By Kafka's name, the one that we like best first."""
