"""Rows of Spark into topics: each once, or each at least once.

Exactly once, by a commit record
--------------------------------
A batch is written by several tasks, each inside a transaction of its own, and a cluster can not
end several transactions as one. So the driver decides in one place first: a record in the
compacted topic `millstream.spark.commits`, whose key is the query's name. It says which batch is
the newest that counts, and which transactions make it up. Appending it is the commit point.

    state    meaning
    done     the batch is in its topics
    decided  its transactions are to be committed, by whoever reads this
    torn     some were committed, some were lost, before anybody could commit them

Invariant: a transaction of a task is committed only after a record that lists it was stored, and
aborted only after no such record can be stored any more. A batch number is decided once.

To hold the second half, nobody decides or aborts before a claim (`claim.py`): the driver's own
transactional id is initialised, which gives it an epoch above all others, and the record as it
stands is appended again with that epoch. From then on the partition refuses whatever an older
driver sends, also what is still on its way, and all that was decided lies before the claim.

In a batch, in this order (`committer.py`):

    driver  finish      a record that is decided: commit its transactions, then append `done`
    driver  sweep       claim, and abort what transactions an earlier run left behind, if any
    task    write       a new epoch for the task's transactional id; rows; no end
    driver  claim
    driver  check       every transaction is still ongoing; else the batch fails, nothing is decided
    driver  decide      append `decided`                              <- the commit point
    driver  finish      commit the transactions, append `done`
    driver  sweep       abort those of attempts that did not count

What a restart finds, by the moment of the crash:

    before `decided`         the record of the batch before. The transactions are swept, or time
                             out; Spark runs the batch again.
    `decided` is on its way  it is stored before the claim of the restart, and then counts; or it
                             is refused after it, and never did.
    after `decided`          the transactions are committed by the restart, before any task runs.
                             To commit one again changes nothing.
    before `done`            the same.
    before Spark notes it    Spark runs the batch again; its number is that of the record, so its
                             tasks write nothing, and the batch counts as written.
    commit() raised          Spark calls abort(), which claims, and finishes a decided batch
                             instead of aborting it.
    a task or executor dies  another attempt has another transactional id; the first is swept.
    too late                 a decided transaction may have timed out before the restart. If all
                             of the batch did, nothing of it is visible: the decision is taken
                             back, and the batch runs again. If some did, the record becomes
                             `torn`: the batch runs again, and only those tasks write, provided that
                             every task has the very rows that it had; else BatchTorn is raised.
    much too late            the cluster may have forgotten what became of a transaction. Then
                             nobody can tell whether it was committed: BatchForgotten is raised.

A query that lost its checkpoint counts its batches from 0 again, and they need not be the same
ones. The record knows the query's id and a fingerprint of all that was written after each of its
batches, so that a new run writes nothing until it has seen exactly that, and is refused with
QueryStartedOver as soon as it sees anything else.

Why, and what else was thought of: docs/decisions/0016-spark-sink.md.
"""
