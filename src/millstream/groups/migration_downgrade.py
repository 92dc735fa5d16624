"""From a consumer group whose members all speak the classic protocol to a classic group.

The classic group continues with the highest epoch of its members as its generation: they know it,
and so are told to join again, keeping what they have. It is stored with that; and it rebalances at
once, since who just left had partitions that nobody has now.
"""

from __future__ import annotations

from millstream.groups import classic_group
from millstream.groups.classic_group import ClassicGroup, ClassicState
from millstream.groups.classic_rebalance import ClassicOutcome, Draft, prepare_rebalance
from millstream.groups.consumer_embedded_protocol import (
    PROTOCOL_TYPE,
    read_subscription,
    write_assignment,
)
from millstream.groups.consumer_group import ConsumerGroup, Member, TopicsView
from millstream.settings.groups import GroupSettings


def downgraded(
    group: ConsumerGroup, now_ms: int, *, topics: TopicsView, settings: GroupSettings
) -> ClassicOutcome:
    """The classic group, rebalancing. Records of the old kind are yet to be taken away."""
    members = {m: _member(member, topics) for m, member in group.members.items()}
    classic = ClassicGroup(
        group_id=group.group_id,
        state=ClassicState.STABLE,
        state_since_ms=now_ms,
        generation=max(member.current.epoch for member in group.members.values()),
        protocol_type=PROTOCOL_TYPE,
        protocol_name=None,
        leader_id=next(iter(members)),
        members=members,
    )
    draft = Draft(classic._replace(protocol_name=classic.elected_protocol()), now_ms, settings)
    draft.store()
    prepare_rebalance(draft)
    return draft.outcome()


def _member(member: Member, topics: TopicsView) -> classic_group.Member:
    membership = member.metadata.classic
    assert membership is not None, "only a group of classic members is moved back"
    version = read_subscription(membership.protocols[0].metadata).version
    return classic_group.Member(
        member_id=member.member_id,
        instance_id=member.metadata.instance_id,
        client_id=member.metadata.client_id,
        client_host=member.metadata.client_host,
        session_timeout_ms=membership.session_timeout_ms,
        rebalance_timeout_ms=member.metadata.rebalance_timeout_ms,
        protocols=membership.protocols,
        assignment=write_assignment(member.current.assigned, topics, version=version),
        session_deadline_ms=member.session_deadline_ms,
    )
