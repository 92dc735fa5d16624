"""Our own Kafka client against real brokers: ours and Apache Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from millstream.client.kafka import (
    EARLIEST,
    LATEST,
    Cluster,
    ClusterSettings,
    GroupMember,
    PartitionsReader,
    Place,
    ProducerIdentity,
    Security,
    StreamFetcher,
)
from millstream.client.kafka.visible_records import visible_batches
from millstream.clock import SystemClock
from millstream.errors import (
    AlreadyExists,
    AuthenticationFailed,
    NonEmptyGroup,
    OffsetOutOfRange,
    RefusedByBroker,
    TransactionLost,
    UnknownGroup,
    UnknownTopic,
)
from millstream.records import Codec, parse_header, records_of
from tests.clients.apache_kafka import MECHANISMS, PASSWORD, USER, ApacheKafka
from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import eventually
from tests.clients.conftest import StartBroker
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of

pytestmark = pytest.mark.system

# Apache Kafka takes no records of the future, and soon deletes those of long ago.
NOW_MS = SystemClock().now_ms() - 600_000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("apache")) as process:
        yield process


@pytest.fixture(params=["millstream", pytest.param("apache", marks=pytest.mark.kafka)])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "millstream":
        broker: BrokerProcess = request.getfixturevalue("broker")
        return broker.address
    process: ApacheKafka = request.getfixturevalue("apache")
    return process.address


@pytest.fixture
def cluster(address: str) -> Iterator[Cluster]:
    with Cluster(address, timeout_s=HANG_S) as client:
        yield client


def numbered(first: int, count: int, *, codec: Codec = Codec.NONE, **more: int) -> bytes:
    values = [b"%d" % number for number in range(first, first + count)]
    times = [NOW_MS + number for number in range(first, first + count)]
    transactional = bool(more.pop("transactional", 0))
    return bytes(
        batch_of(*values, timestamps_ms=times, codec=codec, transactional=transactional, **more)
    )


def read_values(
    cluster: Cluster, place: Place, start: int = 0, max_bytes: int = 1 << 20
) -> list[bytes]:
    """The values of all that is committed, from an offset on."""
    end = cluster.offsets([place], LATEST, committed=True)[place]
    values = []
    aborted: set[int] = set()
    for got in StreamFetcher(cluster, place, start=start, end=end, max_bytes=max_bytes):
        pending = sorted(got.aborted, key=lambda each: each[1])
        position = 0
        while position < len(got.records):
            header = parse_header(got.records, position)
            batch = got.records[position : position + header.size_bytes]
            position += header.size_bytes
            while pending and pending[0][1] <= header.base_offset:
                aborted.add(pending.pop(0)[0])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                values += [
                    record.value or b""
                    for record in records_of(batch, limit_bytes=1 << 26)
                    if record.offset >= start
                ]
    return values


def test_topics_are_created_once_and_found(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 3, {"retention.ms": "-1"})
    assert cluster.partitions([name]) == {name: [0, 1, 2]}
    everything = cluster.partitions()
    assert everything[name] == [0, 1, 2]
    assert "__consumer_offsets" not in everything
    cluster.create_topic(name, 5, exist_ok=True)
    with pytest.raises(AlreadyExists, match="exists already"):
        cluster.create_topic(name)
    with pytest.raises(RefusedByBroker, match="INVALID_CONFIG"):
        cluster.create_topic(f"{name}-2", 1, {"retention.ms": "soon"})
    with pytest.raises(UnknownTopic):
        cluster.partitions([f"{name}-2"])


def test_offsets_by_end_and_by_time(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 2)
    full, empty = (name, 0), (name, 1)
    cluster.produce(full, [numbered(0, 10), numbered(10, 10)])
    both = [full, empty]
    assert cluster.offsets(both, EARLIEST) == {full: 0, empty: 0}
    assert cluster.offsets(both, LATEST) == {full: 20, empty: 0}
    assert cluster.offsets(both, NOW_MS + 13) == {full: 13, empty: 0}
    assert cluster.offsets(both, NOW_MS + 20) == {full: 20, empty: 0}
    assert cluster.offsets(both, 0, committed=True) == {full: 0, empty: 0}


@pytest.mark.parametrize("codec", list(Codec))
def test_range_is_read_as_it_was_written(cluster: Cluster, name: str, codec: Codec) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    batches = [numbered(first, 50, codec=codec) for first in range(0, 5000, 50)]
    assert cluster.produce(place, batches) == list(range(0, 5000, 50))
    expected = [b"%d" % number for number in range(5000)]
    assert read_values(cluster, place) == expected
    assert read_values(cluster, place, start=4321, max_bytes=1000) == expected[4321:]


def test_fetch_gives_a_batch_whatever_its_size_and_tells_the_range(
    cluster: Cluster, name: str
) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    cluster.produce(place, [numbered(0, 100), numbered(100, 100)], acks=1)
    got = cluster.fetch(place, 150, max_bytes=1)
    assert parse_header(got.records).base_offset == 100
    assert (got.high_watermark, got.last_stable_offset, got.log_start_offset) == (200, 200, 0)
    assert not cluster.fetch(place, 200, max_wait_ms=0).records
    with pytest.raises(OffsetOutOfRange) as caught:
        cluster.fetch(place, 201)
    assert (caught.value.start_offset, caught.value.end_offset) == (0, 200)


def test_offsets_of_a_group_are_committed_and_found(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 3)
    places = [(name, number) for number in range(3)]
    assert cluster.committed(name, places) == dict.fromkeys(places)
    cluster.commit(name, {places[0]: 5, places[1]: 0})
    cluster.commit(name, {places[0]: 7})
    assert cluster.committed(name, places) == {places[0]: 7, places[1]: 0, places[2]: None}


def test_transaction_is_ended_by_another_client_as_often_as_it_likes(
    address: str, cluster: Cluster, name: str
) -> None:
    cluster.create_topic(name, 2)
    places = [(name, 0), (name, 1)]
    assert cluster.transactions.state(name) is None
    identity = cluster.transactions.init(name, MINUTE_MS)
    assert cluster.transactions.state(name) == "Empty"
    for turn, is_commit in enumerate([True, False, True]):
        begin(cluster, name, identity, places, first=turn * 10)
        described = cluster.transactions.describe(name)
        assert described is not None
        assert cluster.transactions.ongoing(name[:-1]) == [name]
        assert (described.state, described.places) == ("Ongoing", frozenset(places))
        with Cluster(address) as other:
            for _ in range(2):
                other.transactions.end(name, *identity, commit=is_commit)
            assert other.transactions.ongoing(name) == []
            with pytest.raises(TransactionLost, match="it was ended the other way"):
                other.transactions.end(name, *identity, commit=not is_commit)
    # Apache Kafka tells the partitions after it has answered.
    eventually(lambda: is_stable(cluster, places), "the end of the transaction")
    expected = [b"%d" % number for number in [*range(10), *range(20, 30)]]
    assert [read_values(cluster, place) for place in places] == [expected, expected]


def test_open_transaction_hides_what_follows_it(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    cluster.produce(place, [numbered(0, 5)])
    identity = cluster.transactions.init(name, MINUTE_MS)
    begin(cluster, name, identity, [place], first=0)
    cluster.produce(place, [numbered(100, 5)])
    assert cluster.offsets([place], LATEST) == {place: 20}
    assert cluster.offsets([place], LATEST, committed=True) == {place: 5}
    assert read_values(cluster, place) == [b"%d" % number for number in range(5)]
    cluster.transactions.end(name, *identity, commit=False)
    eventually(lambda: is_stable(cluster, [place]), "the end of the transaction")
    values = [b"%d" % number for number in [*range(5), *range(100, 105)]]
    assert read_values(cluster, place) == values


def test_new_producer_fences_the_one_before(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    old = cluster.transactions.init(name, MINUTE_MS)
    begin(cluster, name, old, [place], first=0)
    new = cluster.transactions.init(name, MINUTE_MS)
    assert new.producer_epoch > old.producer_epoch
    with pytest.raises(TransactionLost, match="a newer producer has its id"):
        cluster.transactions.end(name, *old, commit=True)
    with pytest.raises(TransactionLost, match="a newer producer has its id"):
        cluster.transactions.add(name, *old, [place])
    with pytest.raises(TransactionLost):
        cluster.produce(place, [written(10, old)], transactional_id=name)
    begin(cluster, name, new, [place], first=0)
    cluster.transactions.end(name, *new, commit=True)
    eventually(lambda: is_stable(cluster, [place]), "the end of the transaction")
    assert read_values(cluster, place) == [b"%d" % number for number in range(10)]


def test_older_epoch_of_plain_batches_is_refused_once_a_newer_has_written(
    cluster: Cluster, name: str
) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    old, new = (cluster.transactions.init(name, MINUTE_MS) for _ in range(2))

    def plain(identity: ProducerIdentity) -> bytes:
        return numbered(
            0, 1, producer_id=identity.producer_id, epoch=identity.producer_epoch, sequence=0
        )

    assert cluster.produce(place, [plain(old)]) == [0]
    assert cluster.produce(place, [plain(new)]) == [1]
    with pytest.raises(RefusedByBroker, match="INVALID_PRODUCER_EPOCH"):
        cluster.produce(place, [plain(old)])


def test_transaction_that_takes_too_long_is_lost(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    place = (name, 0)
    identity = cluster.transactions.init(name, 300)
    with suppress(TransactionLost):
        # On a busy machine it is lost before it has sent all.
        begin(cluster, name, identity, [place], first=0)
    eventually(lambda: cluster.transactions.state(name) == "CompleteAbort", "the timeout")
    with pytest.raises(TransactionLost, match="it took too long and was aborted"):
        cluster.transactions.end(name, *identity, commit=True)
    assert read_values(cluster, place) == []


def test_transaction_that_never_began_can_be_aborted_alone(cluster: Cluster, name: str) -> None:
    identity = cluster.transactions.init(name, MINUTE_MS)
    cluster.transactions.end(name, *identity, commit=False)
    with pytest.raises(TransactionLost, match="never began"):
        cluster.transactions.end(name, *identity, commit=True)
    with pytest.raises(TransactionLost):
        cluster.transactions.end(f"{name}-unknown", *identity, commit=False)


def test_record_batch_that_is_too_large_is_refused(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 1, {"max.message.bytes": "1000"})
    with pytest.raises(RefusedByBroker, match="MESSAGE_TOO_LARGE"):
        cluster.produce((name, 0), [bytes(batch_of(bytes(2000)))])


@pytest.mark.system
def test_broker_that_is_killed_again_and_again_takes_every_batch_once(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker()
    count, size = 400, 10
    with Cluster(broker.address, timeout_s=HANG_S) as cluster:
        cluster.create_topic(name)
        place = (name, 0)
        identity = cluster.transactions.init(name, 10 * MINUTE_MS)
        cluster.transactions.add(name, *identity, [place])
        producer = cluster.producer(transactional_id=name)
        for start in range(0, count, count // 2):
            # It comes while there is something to send.
            killer = threading.Thread(target=broker.kill_and_restart)
            killer.start()
            for number in range(start, start + count // 2):
                producer.send(place, written(number * size, identity, count=size))
            killer.join()
        offsets = producer.flush()
        producer.close()
        cluster.transactions.end(name, *identity, commit=True)
        broker.kill_and_restart()
        cluster.transactions.end(name, *identity, commit=True)
        assert offsets == list(range(0, count * size, size))
        assert read_values(cluster, place) == [b"%d" % number for number in range(count * size)]


@pytest.mark.system
def test_reader_goes_on_after_a_broker_was_killed(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    with Cluster(broker.address, timeout_s=HANG_S) as cluster:
        cluster.create_topic(name)
        place = (name, 0)
        cluster.produce(place, [numbered(first, 10) for first in range(0, 1000, 10)])
        offsets = []
        fetcher = StreamFetcher(cluster, place, start=0, end=1000, max_bytes=2000)
        for number, got in enumerate(fetcher):
            offsets.append(parse_header(got.records).base_offset)
            if number in {3, 9}:
                broker.kill_and_restart()
        assert offsets == sorted(set(offsets))
        assert fetcher.next_offset == 1000


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_is_let_in_through_tls_by_password(
    apache: ApacheKafka, mechanism: str, name: str
) -> None:
    settings = ClusterSettings(
        bootstrap=apache.secure_address,
        security=Security(
            protocol="SASL_SSL",
            mechanism=mechanism,
            username=USER,
            password=PASSWORD,
            ca_location=str(apache.certificate),
        ),
    )
    with Cluster(settings) as cluster:
        cluster.create_topic(name)
        cluster.produce((name, 0), [numbered(first, 1000) for first in range(0, 9000, 1000)])
        assert len(read_values(cluster, (name, 0))) == 9000


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_with_a_wrong_password_is_not(apache: ApacheKafka, mechanism: str) -> None:
    security = Security(
        protocol="SASL_SSL",
        mechanism=mechanism,
        username=USER,
        password="wrong",
        ca_location=str(apache.certificate),
    )
    with (
        Cluster(apache.secure_address, security=security) as cluster,
        pytest.raises(AuthenticationFailed, match=f"{mechanism} as 'alice'"),
    ):
        cluster.partitions()


def test_topics_are_described_changed_and_deleted(cluster: Cluster, name: str) -> None:
    administration = cluster.administration
    cluster.create_topic(name, 2, {"retention.ms": "86400000"})
    [listing] = administration.topics([name])
    assert [each.number for each in listing.partitions] == [0, 1]
    assert all(each.leader in each.in_sync for each in listing.partitions)
    assert listing in administration.topics()
    cluster.produce((name, 1), [numbered(0, 100)])
    sizes = administration.sizes([(name, 0), (name, 1)])
    assert sizes[name, 1] > 100
    assert sizes[name, 0] == 0
    administration.alter_settings(name, {"segment.bytes": "2000000", "retention.ms": None})
    found = {each.name: (each.value, each.origin) for each in administration.settings(name)}
    assert found["segment.bytes"] == ("2000000", "topic")
    assert found["retention.ms"] == ("604800000", "default")
    with pytest.raises(RefusedByBroker, match="INVALID_CONFIG"):
        administration.alter_settings(name, {"segment.bytes": "many"})
    administration.add_partitions(name, 4)
    eventually(lambda: cluster.partitions([name]) == {name: [0, 1, 2, 3]}, "four partitions")
    with pytest.raises(RefusedByBroker, match="INVALID_PARTITIONS"):
        administration.add_partitions(name, 3)
    administration.delete_topic(name)
    eventually(lambda: name not in cluster.partitions(), "the topic is gone")
    for refused in (administration.settings, administration.delete_topic):
        with pytest.raises(UnknownTopic):
            refused(name)


def test_members_share_a_group_and_pass_on_where_they_were(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 4)
    places = [(name, number) for number in range(4)]
    shares: list[list[Place]] = []

    def read_on(other: GroupMember) -> None:
        shares.append(other.join())

    with cluster.member(name, [name]) as first:
        assert first.join() == places
        assert first.commit({places[0]: 0})
        second = cluster.member(name, [name])
        thread = threading.Thread(target=read_on, args=[second])
        thread.start()
        eventually(lambda: first.must_join, "the group rebalances")
        mine = first.join()
        thread.join()
        assert sorted([*mine, *shares[0]]) == places
        assert (len(mine), len(shares[0])) == (2, 2)
        described = cluster.groups.describe(name)
        assert (described.state, described.assignor) == ("Stable", "range")
        assert sorted(each.places for each in described.members) == sorted(
            [tuple(mine), tuple(shares[0])]
        )
        with pytest.raises(NonEmptyGroup):
            cluster.groups.delete(name)
        second.leave()
        eventually(lambda: first.must_join, "the group rebalances")
        assert first.join() == places
        assert first.commit({places[3]: 0})
    assert cluster.groups.offsets(name) == {places[0]: 0, places[3]: 0}
    assert name in {each.name for each in cluster.groups.list()}
    cluster.groups.delete(name)
    with pytest.raises(UnknownGroup):
        cluster.groups.describe(name)


def test_several_partitions_are_read_without_what_was_aborted(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, 3)
    places = [(name, number) for number in range(3)]
    for place in places:
        cluster.produce(place, [numbered(0, 10)])
    for commit in (True, False):
        identity = cluster.transactions.init(name, 60_000)
        begin(cluster, name, identity, places, first=0)
        cluster.transactions.end(name, *identity, commit=commit)
    eventually(lambda: is_stable(cluster, places), "the transactions ended")
    ends = cluster.offsets(places, LATEST)
    reader = PartitionsReader(cluster, cluster.offsets(places, EARLIEST))
    seen: dict[Place, int] = dict.fromkeys(places, 0)
    try:
        while any(reader.positions[place] < ends[place] for place in places):
            for place, found in reader.poll(5.0):
                for header, _ in visible_batches(found):
                    seen[place] += header.records_count
    finally:
        reader.close()
    assert seen == dict.fromkeys(places, 20)


def written(first: int, identity: ProducerIdentity, count: int = 10) -> bytes:
    """A batch of a transaction, whose sequence is its first value."""
    return numbered(
        first,
        count,
        producer_id=identity.producer_id,
        epoch=identity.producer_epoch,
        sequence=first,
        transactional=True,
    )


def begin(
    cluster: Cluster, name: str, identity: ProducerIdentity, places: list[Place], *, first: int
) -> None:
    """Write ten records to each place, in a transaction that is left open."""
    cluster.transactions.add(name, *identity, places)
    with cluster.producer(transactional_id=name) as producer:
        for place in places:
            producer.send(place, written(first, identity))


def is_stable(cluster: Cluster, places: list[Place]) -> bool:
    return cluster.offsets(places, LATEST) == cluster.offsets(places, LATEST, committed=True)
