"""Loads items with redis-py, packed as it goes: the Python client of packed.rs.

    load.py PORT COMMAND lines|numpy ITEMS BATCH

COMMAND is BF.BULKADD or BF.BULKEXISTS, the key is `k`. Prints the seconds that it took. The items are made before the
clock starts. Two batches are sent before the answers of the first are read, so that the server does not wait.
"""

import sys
import time

import numpy
import redis

port, command, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
count, batch = int(sys.argv[4]), int(sys.argv[5])
connection = redis.Redis(port=port).connection_pool.get_connection()
if kind == "numpy":
    items, words = numpy.arange(count, dtype="<u8"), (b"WIDTH", b"8")
else:
    items, words = [b"user:%012d" % number for number in range(count)], (b"LINES",)


def answers():
    answered, bits = connection.read_response()
    return int(numpy.unpackbits(numpy.frombuffer(bits, dtype=numpy.uint8), count=answered).sum())


begin = time.monotonic()
ones = waiting = 0
for start in range(0, count, batch):
    part = items[start : start + batch]
    blob = memoryview(part).cast("B") if kind == "numpy" else b"\n".join(part)
    connection.send_command(command, "k", *words, blob)
    waiting += 1
    if waiting > 2:
        ones += answers()
        waiting -= 1
while waiting:
    ones += answers()
    waiting -= 1
seconds = time.monotonic() - begin
if ones < count * 0.98:
    sys.exit(f"only {ones} of {count} answers are 1")
print(seconds)
