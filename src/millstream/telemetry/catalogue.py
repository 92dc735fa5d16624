"""Every metric that the broker tells, in the order in which they are told.

The table in docs/guides/monitoring.md is made of this one.
"""

from __future__ import annotations

from millstream.telemetry.metric import Kind, Metric

_ALL: list[Metric] = []


def _metric(name: str, kind: Kind, labels: str, doc: str) -> Metric:
    metric = Metric(name, kind, tuple(labels.split()), doc)
    _ALL.append(metric)
    return metric


def _counter(name: str, labels: str, doc: str) -> Metric:
    return _metric(f"{name}_total", Kind.COUNTER, labels, doc)


def _gauge(name: str, labels: str, doc: str) -> Metric:
    return _metric(name, Kind.GAUGE, labels, doc)


def _histogram(name: str, labels: str, doc: str) -> Metric:
    return _metric(f"{name}_seconds", Kind.HISTOGRAM, labels, doc)


# The broker

INFO = _gauge("millstream_info", "version cluster_id", "Always 1; the labels tell which broker.")
TOPICS = _gauge("millstream_topics", "", "Topics, without the broker's own.")
PARTITIONS = _gauge("millstream_partitions", "", "Partitions of all topics, the broker's own too.")
OFFLINE_PARTITIONS = _gauge(
    "millstream_offline_partitions", "", "Partitions whose log has stopped or could not be opened."
)
REFUSING_PARTITIONS = _gauge(
    "millstream_refusing_partitions", "", "Partitions that take no messages, as on a full disk."
)
LOOP_DELAY = _histogram(
    "millstream_event_loop_delay",
    "",
    "How late the event loop was to do what was due; asked ten times a second.",
)

# Requests

KAFKA_REQUESTS = _histogram(
    "millstream_kafka_request",
    "api",
    "Time from the arrival of a Kafka request to its answer, and with _count how many were "
    "answered. A fetch counts with its wait for data, a join with its wait for other members.",
)
HTTP_REQUESTS = _histogram(
    "millstream_http_request",
    "route",
    "Time from the arrival of an HTTP request to the end of its answer, by group of routes.",
)
HTTP_ANSWERS = _counter(
    "millstream_http_requests", "route code", "HTTP requests, by group of routes and status code."
)
PYLOGSTREAMS_COMMANDS = _counter(
    "millstream_pylogstreams_commands",
    "command",
    "Commands of PyLogStreams clients, but for PUB, of which topics tell.",
)

# Doors

CONNECTIONS = _gauge("millstream_connections", "door", "Clients that are connected now.")
CONNECTIONS_ACCEPTED = _counter(
    "millstream_connections_accepted", "door", "Clients that have connected since the start."
)
PENDING_REQUESTS = _gauge(
    "millstream_pending_requests", "door", "Requests that were taken and are not answered yet."
)
HELD_BYTES = _gauge(
    "millstream_held_bytes",
    "door",
    "Answers that wait for their turn, and requests that wait for what they ask for.",
)
MEMORY_USED = _gauge(
    "millstream_request_memory_bytes",
    "door",
    "Memory reserved for requests that have not come whole.",
)
MEMORY_WAITING = _gauge(
    "millstream_request_memory_waiting",
    "door",
    "Connections that are not read because they wait for such memory.",
)
MEMORY_LIMIT = _gauge(
    "millstream_memory_limit_bytes",
    "",
    "Memory that all clients together may make the broker hold: `max.memory.bytes`.",
)
MEMORY_BUDGET = _gauge(
    "millstream_memory_used_bytes",
    "use",
    "What they make it hold: requests that have not come whole, and answers that are not read.",
)
UNREAD_DROPPED = _counter(
    "millstream_unread_connections_dropped",
    "",
    "Connections that were closed because others needed the memory of answers left unread.",
)
PURGATORY = _gauge(
    "millstream_purgatory_size",
    "operation",
    "Who waits: fetch for data, produce for the disk, read over HTTP for data, receive for the "
    "messages of a subscription.",
)

# Topics

MESSAGES_IN = _counter(
    "millstream_topic_messages_in", "topic", "Messages stored for clients, through any door."
)
BYTES_IN = _counter(
    "millstream_topic_bytes_in", "topic", "Bytes of those, as they are stored in batches."
)
MESSAGES_OUT = _counter(
    "millstream_topic_messages_out",
    "topic",
    "Messages sent to clients, each time that one was sent; with Kafka whole batches.",
)
BYTES_OUT = _counter(
    "millstream_topic_bytes_out",
    "topic",
    "Bytes of those: with Kafka of the batches, else of keys, values and headers.",
)
LOG_START = _gauge(
    "millstream_log_start_offset", "topic partition", "The first offset that is there."
)
LOG_END = _gauge(
    "millstream_log_end_offset", "topic partition", "The offset that the next message gets."
)
LOG_SIZE = _gauge("millstream_log_size_bytes", "topic partition", "Bytes of all segments.")
SEGMENTS = _gauge(
    "millstream_log_segments",
    "topic state",
    "Segments: active takes appends, full waits for the disk, archived is on it.",
)

# The disk

FLUSH = _histogram(
    "millstream_log_flush", "", "Time of a sync of one log, with all its fsync calls."
)
FLUSH_FAILURES = _counter("millstream_log_flush_failures", "", "Syncs that failed.")
FLUSH_QUEUE = _gauge("millstream_log_flush_queue", "", "Logs that are being synced now.")
DISK_FREE = _gauge("millstream_disk_free_bytes", "", "Room that is left where the data lies.")
DISK_TOTAL = _gauge("millstream_disk_total_bytes", "", "Size of the disk where the data lies.")
RECOVERED_LOGS = _gauge(
    "millstream_recovery_unclean_logs",
    "",
    "Logs that the start had to read because they were not stopped cleanly.",
)
RECOVERY_SCANNED = _gauge(
    "millstream_recovery_scanned_bytes", "", "How many bytes of them it read."
)
RECOVERY_TORN = _gauge(
    "millstream_recovery_torn_logs", "", "Logs whose end was cut off at the start, torn by a crash."
)
DAMAGED_PLACES = _gauge(
    "millstream_log_damaged_places", "", "Places in logs that are damaged and cannot be read."
)
REPAIRED_PLACES = _gauge(
    "millstream_log_repaired_places",
    "",
    "Damaged places in the broker's own topics that the start repaired from the other copy.",
)
COPIES_BEHIND = _gauge(
    "millstream_log_copies_behind",
    "",
    "Topics of the broker's own whose second copy could not be written.",
)
REBUILT_INDEXES = _gauge(
    "millstream_log_rebuilt_indexes", "", "Indexes that were missing or damaged and written anew."
)

# Upkeep

RETENTION_SEGMENTS = _counter(
    "millstream_retention_deleted_segments", "", "Segments that were deleted as past their keep."
)
RETENTION_BYTES = _counter(
    "millstream_retention_deleted_bytes", "", "Bytes that were deleted as past their keep."
)
RETENTION_HELD = _gauge(
    "millstream_retention_held_bytes",
    "topic partition",
    "Bytes that are kept only because a group has still to read them.",
)
RETENTION_AT_RISK = _gauge(
    "millstream_retention_at_risk_offsets",
    "topic partition group",
    "Offsets that a group has not read and that go soon.",
)
RETENTION_LOST = _counter(
    "millstream_retention_lost_offsets",
    "topic partition group",
    "Offsets that went before a group had read them.",
)
CLEANER_PASSES = _counter("millstream_cleaner_passes", "", "Compactions that were completed.")
CLEANER_FAILURES = _counter("millstream_cleaner_failures", "", "Compactions that failed.")
CLEANER_READ = _counter("millstream_cleaner_read_bytes", "", "Bytes that compactions went through.")
CLEANER_SAVED = _counter("millstream_cleaner_saved_bytes", "", "Bytes that compactions took out.")
CLEANER_RUNNING = _gauge("millstream_cleaner_running", "", "1 while a compaction is under way.")
CLEANER_TIME = _histogram("millstream_cleaner", "", "Time of a compaction.")

# Groups

GROUPS = _gauge("millstream_groups", "state", "Consumer groups.")
COMMITTED = _gauge(
    "millstream_group_committed_offset",
    "group topic partition",
    "The offset that a group has committed.",
)
LAG = _gauge(
    "millstream_group_lag",
    "group topic partition",
    "Offsets between what a group has committed and the end of the log, or all of a partition that "
    "it has never read.",
)
NEVER_READ = _gauge(
    "millstream_group_never_read",
    "group topic partition",
    "The lag of partitions of which a group has committed nothing, while it has of their topic.",
)

# Queues

SUBSCRIPTION_CONSUMERS = _gauge(
    "millstream_subscription_consumers", "topic subscription", "Consumers that are attached."
)
BACKLOG = _gauge(
    "millstream_subscription_backlog",
    "topic subscription",
    "Messages that are not acknowledged, at most.",
)
IN_FLIGHT = _gauge(
    "millstream_subscription_in_flight", "topic subscription", "Messages in somebody's hands."
)
DELAYED = _gauge(
    "millstream_subscription_delayed",
    "topic subscription",
    "Messages that are known to be for later.",
)
REFUSED = _gauge(
    "millstream_subscription_waiting",
    "topic subscription",
    "Messages that were refused and wait to be delivered again.",
)
REDELIVERED = _counter(
    "millstream_subscription_redelivered",
    "topic subscription",
    "Messages that were delivered again.",
)
DEAD_LETTERS = _counter(
    "millstream_subscription_dead_letters",
    "topic subscription",
    "Messages that were sent to the dead letters, ever: a restart does not forget them.",
)
SUBSCRIPTION_LOST = _counter(
    "millstream_subscription_lost",
    "topic subscription",
    "Messages that retention deleted before they were acknowledged, at most, ever.",
)

# Pipelines

PIPELINE_UP = _gauge(
    "millstream_pipeline_up", "pipeline", "1 for a pipeline that runs and is heard of."
)
PIPELINE_ROWS_IN = _counter(
    "millstream_pipeline_rows_in", "pipeline", "Rows that its sinks have read in this run."
)
PIPELINE_ROWS_OUT = _counter(
    "millstream_pipeline_rows_out", "pipeline", "Rows that it has put out in this run."
)
PIPELINE_BAD_ROWS = _counter(
    "millstream_pipeline_bad_rows", "pipeline", "Rows that it could not make sense of in this run."
)
PIPELINE_LAG = _gauge(
    "millstream_pipeline_lag",
    "pipeline",
    "Records that are there and that a sink of it has not read.",
)

# The process, by the names that all exporters use

PROCESS_CPU = _counter("process_cpu_seconds", "", "CPU time of the process, user and system.")
PROCESS_MEMORY = _gauge("process_resident_memory_bytes", "", "Memory that the process occupies.")
PROCESS_FILES = _gauge("process_open_fds", "", "Files and connections that the process has open.")
PROCESS_MAX_FILES = _gauge("process_max_fds", "", "How many it may have open.")
PROCESS_START = _gauge(
    "process_start_time_seconds", "", "When the broker started, in seconds since the epoch."
)

CATALOGUE: tuple[Metric, ...] = tuple(_ALL)
"""All of them."""
