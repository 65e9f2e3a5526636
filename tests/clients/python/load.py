import os
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ITEMS, BATCH = int(os.environ.get("ITEMS", 100_000_000)), 10_000
url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
pool = redis.ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0))
r = redis.Redis(connection_pool=pool, single_connection_client=True)  # if the connection breaks, the program ends


def bulk(command, *words):
    """Sends a packed batch; returns the answers as a string of bits."""
    count, bits, *error = r.execute_command(command, *words)
    if error:  # the filter is full, or there is no memory: the first `count` items are in
        raise error[0]
    return f"{int.from_bytes(bits, 'big'):0{8 * len(bits)}b}"[:count]


r.unlink("users")
r.bf().create("users", 0.01, ITEMS)
new = 0
for start in range(0, ITEMS, BATCH):
    items = [b"user:%d" % number for number in range(start, min(start + BATCH, ITEMS))]
    # Every line ends with \n, so that an empty last item counts. No item may contain \n.
    blob = b"".join(item + b"\n" for item in items)
    new += bulk("BF.BULKADD", "users", "NOCREATE", "LINES", blob).count("1")

found = bulk("BF.BULKEXISTS", "users", "LINES", b"user:0\nuser:1\nnobody\n")
assert found[:2] == "11" and new >= 0.98 * ITEMS
print(f"python: {new} of {ITEMS} items were new")
