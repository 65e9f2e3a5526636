import os
import numpy
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis_bloom import bulk

ITEMS, PART = int(os.environ.get("ITEMS", 100_000_000)), 1_000_000
url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
pool = redis.ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0))
r = redis.Redis(connection_pool=pool, single_connection_client=True)  # if the connection breaks, the program ends

r.unlink("ids")
r.bf().create("ids", 0.01, ITEMS)
new = 0
for start in range(0, ITEMS, PART):
    # Little-endian on every machine: other programs must pack their numbers alike.
    ids = numpy.arange(start, min(start + PART, ITEMS), dtype="<u8")
    new += bulk.add(r, "ids", ids, "NOCREATE").count()
assert all(bulk.exists(r, "ids", ids))
print(f"numpy: {new} of {ITEMS} items were new")
