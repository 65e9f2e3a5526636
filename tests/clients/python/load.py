import os
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis_bloom import bulk

ITEMS = int(os.environ.get("ITEMS", 100_000_000))
url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
pool = redis.ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0))
r = redis.Redis(connection_pool=pool, single_connection_client=True)  # if the connection breaks, the program ends

r.unlink("users")  # deletes the filter, so that this program can run again
r.bf().create("users", 0.01, ITEMS)
new = bulk.add(r, "users", (f"user:{number}" for number in range(ITEMS)), "NOCREATE")
assert list(bulk.exists(r, "users", ["user:0", "user:1", "nobody"]))[:2] == [True, True]
print(f"python: {new.count()} of {len(new)} items were new")
