import os
import numpy
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ITEMS, BATCH = int(os.environ.get("ITEMS", 100_000_000)), 100_000
url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
pool = redis.ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0))
r = redis.Redis(connection_pool=pool, single_connection_client=True)  # if the connection breaks, the program ends


def bulk(command, key, numbers, *options):
    """Sends an array of 64-bit integers as it lies in memory; returns an array of booleans."""
    words = ["WIDTH", numbers.itemsize, numbers.tobytes()]
    count, bits, *error = r.execute_command(command, key, *options, *words)
    if error:  # the filter is full, or there is no memory: the first `count` items are in
        raise error[0]
    return numpy.unpackbits(numpy.frombuffer(bits, numpy.uint8), count=count).astype(bool)


r.unlink("ids")
r.bf().create("ids", 0.01, ITEMS)
new = 0
for start in range(0, ITEMS, BATCH):
    # Little-endian on every machine: other programs must pack their numbers alike.
    ids = numpy.arange(start, min(start + BATCH, ITEMS), dtype="<u8")
    new += int(bulk("BF.BULKADD", "ids", ids, "NOCREATE").sum())

ids = numpy.array([0, 1, ITEMS + 1], dtype="<u8")
known = ids[bulk("BF.BULKEXISTS", "ids", ids)]
assert set(known) >= {0, 1} and new >= 0.98 * ITEMS
print(f"numpy: {new} of {ITEMS} items were new")
