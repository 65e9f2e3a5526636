import os
import redis

FILTER, NEW = "guard:{users}", "guard:{users}:new"  # braces: one slot of a cluster, for RENAME
ERROR_RATE, CAPACITY, BATCH = 0.01, 120_000, 1000

r = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
database = {f"user:{i}": f"name {i}" for i in range(100_000)}  # stands for the database
queries = 0


def ask_database(key):
    global queries
    queries += 1
    return database.get(key)


def build():
    """Makes the filter from all keys there are. Until it is complete it has another name."""
    r.delete(NEW)
    r.bf().reserve(NEW, ERROR_RATE, CAPACITY)
    keys = list(database)
    for i in range(0, len(keys), BATCH):
        batch = keys[i : i + BATCH]
        r.bf().madd(NEW, *batch)
        if not all(r.bf().mexists(NEW, *batch)):
            raise RuntimeError("the filter does not take all keys")
    r.rename(NEW, FILTER)


def insert(key, value):
    """A new row: its key goes into the filter first, and into one that is being built."""
    for name in (NEW, FILTER):
        try:
            r.bf().insert(name, [key], noCreate=True)
            if not r.bf().exists(name, key):
                raise RuntimeError("the filter does not take the key")
        except redis.ResponseError as error:
            if "not found" not in str(error):
                raise
    database[key] = value


def lookup(key):
    try:
        if not r.bf().exists(FILTER, key):
            return None  # certainly no such row
    except redis.ResponseError:
        pass  # "ERR not found": the filter was lost, so it knows nothing
    return ask_database(key)


build()
assert all(lookup(f"user:{i}") for i in range(1000))
queries = 0
assert not any(lookup(f"attacker:{i}") for i in range(10_000))
passed = queries
assert passed <= 160, "1 % of them are expected, or fewer"

insert("user:new", "somebody")
assert lookup("user:new") == "somebody"

r.unlink(FILTER)  # evicted, expired, deleted by mistake
assert lookup("user:1") == "name 1", "is bf.missing-key-error set? a lost filter turns all away"
insert("user:newer", "somebody else")
assert lookup("user:2") == "name 2", "a key added alone must not turn the others away"
assert not r.exists(FILTER, NEW)
print(f"python: {passed} of 10000 lookups in vain reached the database")
