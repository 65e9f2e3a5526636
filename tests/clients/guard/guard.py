import os
import redis

FILTER, NEW = "guard:{users}", "guard:{users}:new"  # hash tag: RENAME needs both keys in one slot
ERROR_RATE, CAPACITY, BATCH = 0.01, 120_000, 1000

r = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
database = {f"user:{i}": f"name {i}" for i in range(100_000)}  # replaces a real database
queries = 0


def ask_database(key):
    global queries
    queries += 1
    return database.get(key)


def build():
    """Builds the filter from all existing keys under a temporary name, then renames it."""
    r.delete(NEW)
    r.bf().reserve(NEW, ERROR_RATE, CAPACITY)
    keys = list(database)
    for i in range(0, len(keys), BATCH):
        batch = keys[i : i + BATCH]
        r.bf().madd(NEW, *batch)
        if not all(r.bf().mexists(NEW, *batch)):
            raise RuntimeError("the filter does not hold all keys")
    r.rename(NEW, FILTER)


def insert(key, value):
    """Adds the key to the filter and to one under construction, then inserts the row."""
    for name in (NEW, FILTER):
        try:
            r.bf().insert(name, [key], noCreate=True)
            if not r.bf().exists(name, key):
                raise RuntimeError("the filter does not hold the key")
        except redis.ResponseError as error:
            if "not found" not in str(error):
                raise
    database[key] = value


def lookup(key):
    try:
        if not r.bf().exists(FILTER, key):
            return None  # the row certainly does not exist
    except redis.ResponseError:
        pass  # "ERR not found": no filter, so ask the database
    return ask_database(key)


build()
assert all(lookup(f"user:{i}") for i in range(1000))
queries = 0
assert not any(lookup(f"attacker:{i}") for i in range(10_000))
passed = queries
assert passed <= 160, "more false positives than a rate of 1 % explains"

insert("user:new", "somebody")
assert lookup("user:new") == "somebody"

r.unlink(FILTER)  # as if evicted, expired or deleted by mistake
assert lookup("user:1") == "name 1", "a missing filter hides rows: set bf.missing-key-error"
insert("user:newer", "somebody else")
assert lookup("user:2") == "name 2", "adding one key must not hide the other rows"
assert not r.exists(FILTER, NEW)
print(f"python: {passed} of 10000 lookups of missing keys reached the database")
