"""Prints what an answer takes in each form of docs/guide/two-tiers.md: microseconds, medians.

Run it with scripts/with-server and the Python of scripts/test-clients. The in-process copy is measured by
examples/replica.rs.
"""

import os
import statistics
import tempfile
import time

import redis

from server import Server, until
from two_tiers import Batch, Recent, host_replica

ITEMS, BATCH = 1_000_000, 10_000


def median(run, calls, count):
    """The median over `count` runs of run(number), which has so many calls."""
    times = []
    for number in range(count):
        start = time.perf_counter()
        run(number)
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


def each(call):
    """A run of 1,000 calls of call(item)."""
    def run(number):
        for item in items[1000 * (number % 100) : 1000 * (number % 100) + 1000]:
            call(item)
    return run


items = [b"user:%d" % number for number in range(100_000)]
primary = redis.Redis(port=int(os.environ["REDIS_PORT"]))
primary.flushall()
primary.bf().create("users", 0.01, ITEMS)
for start in range(0, ITEMS, BATCH):
    primary.bf().insert("users", [b"user:%d" % number for number in range(start, start + BATCH)])

recent = Recent(lambda item: True, len(items))
for item in items:
    recent.contains(item)
print(f"items that were found, in the application: {median(each(recent.contains), 1000, 201):.2f}")

batch = Batch(primary, "users", len(items))
for item in items:
    batch.take(item)
print(f"local set, an item it has: {median(each(batch.take), 1000, 201):.2f}")


def flush(number):
    batch.waiting = items[BATCH * (number % 10) : BATCH * (number % 10) + BATCH]
    batch.flush()


print(f"its flush, an item of {BATCH}: {median(flush, BATCH, 51):.2f}")
print(f"server over TCP, loopback: {median(each(lambda item: primary.bf().exists('users', item)), 1000, 21):.0f}")

with tempfile.TemporaryDirectory() as directory:
    near = Server("--unixsocket", directory + "/socket")
    replica = host_replica(directory + "/socket")
    replica.config_set("appendonly", "no")  # else a child writes into the directory that close() removes
    replica.replicaof("127.0.0.1", os.environ["REDIS_PORT"])
    until(lambda: replica.info("replication").get("master_link_status") == "up", "the replica has all")
    hundred = median(lambda number: replica.bf().mexists("users", *items[100 * number : 100 * number + 100]), 100, 201)
    # The bare connection: what redis-py itself takes is left out.
    connection = replica.connection_pool.get_connection("EXISTS")

    def bare(item):
        connection.send_packed_command([b"*3\r\n$9\r\nBF.EXISTS\r\n$5\r\nusers\r\n$%d\r\n%s\r\n" % (len(item), item)])
        connection.read_response()

    print(f"replica over a unix socket: {median(each(lambda item: replica.bf().exists('users', item)), 1000, 21):.0f}")
    print(f"the same, without redis-py's packing: {median(each(bare), 1000, 21):.0f}")
    print(f"the same, an item of 100 in a command: {hundred:.2f}")
    near.close()
