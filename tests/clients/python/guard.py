"""A guard in front of a database: a Bloom filter of all keys, asked before the database is.

A lookup never fails because of the filter, and never hides a row that exists.
"""

import itertools
import logging
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

FILTER, NEW = "guard:{users}", "guard:{users}:new"  # {users}: RENAME needs both names in one slot
COMPLETE = "guard: complete"  # the item that a build adds last: without it a filter is not believed
ERROR_RATE = 0.001  # of the lookups of rows that do not exist, the share that still asks the database
CAPACITY = 120_000  # the rows that you expect until the next build; beyond it the filter grows and gets slower
BATCH = 1000
PAUSE = 1.0  # seconds after a failure in which only the database is asked
LONGEST_INSERT = 5.0  # seconds that insert() can take at most: build() waits that long
LONGEST_TRANSACTION = 2.0  # of these, what database.insert() can take: its timeout, connecting and commit included

# Completes a filter and puts it in the place of the old one, at once. Only one that has the items of this build is
# completed: another build may have begun a new filter under the same name.
FINISH = """
local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
for _, found in ipairs(own) do
  if found == 0 then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
end
redis.call('BF.ADD', KEYS[1], ARGV[1])
return redis.call('RENAME', KEYS[1], KEYS[2])
"""

log = logging.getLogger("guard")


def connect(url, timeout):
    """A client that waits `timeout` seconds at most and tries once; redis-py 8 may try for 5 seconds by default."""
    return redis.Redis.from_url(
        url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
    )


def add(client, name, items):
    """Adds items to a filter that exists: NOCREATE, since one with these items only would hide all others."""
    answers = client.bf().insert(name, items, noCreate=True)
    if not isinstance(answers[-1], int):  # redis-py does not raise an error that is inside an array
        raise RuntimeError(f"not all items were added: {answers[-1]}")


class Guard:
    def __init__(self, reader, writer, database):
        self.reader = reader  # connect(url, 0.1)
        self.writer = writer  # connect(url, 1.0)
        self.database = database  # has get(key), insert(key, value) and keys()
        self.failures = 0  # how often the filter gave no answer: a metric to watch
        self.resume_at = 0.0

    def lookup(self, key):
        """The row of the key, or None. Asks the database unless the filter says that there is no such row."""
        return None if self.is_absent(key) else self.database.get(key)

    def is_absent(self, key):
        """Whether the row certainly does not exist; False also if the filter cannot tell."""
        if time.monotonic() < self.resume_at:
            return False
        try:
            found, complete = self.reader.bf().mexists(FILTER, key, COMPLETE)
            if complete:
                return not found
            problem = "there is no complete filter"
        except Exception as error:  # whatever it is, the database is asked
            problem = f"{type(error).__name__}: {error}"
        self.failures += 1
        self.resume_at = time.monotonic() + PAUSE
        log.warning("the filter gave no answer: %s", problem)
        return False

    def insert(self, key, value):
        """Adds the key to the filters, then the row to the database. On an exception the row may be missing: try again."""
        begin = time.monotonic()  # before the first filter is asked, because build() waits from there on
        for name in (NEW, FILTER):  # in this order, because build() renames the first to the second
            try:
                add(self.writer, name, [key])
            except redis.ResponseError as error:
                if str(error) != "not found":  # a filter that does not exist needs no key
                    raise
        if time.monotonic() - begin > LONGEST_INSERT - LONGEST_TRANSACTION:
            raise TimeoutError("the filters took so long that a build may miss the row")
        self.database.insert(key, value)


def build(client, database, wait=LONGEST_INSERT):
    """Fills a new filter with all keys and puts it in the place of the old one. On an exception the old one stays."""
    # All on one connection: if the server restarts meanwhile, perhaps from an older snapshot, it breaks.
    with client.client() as r:
        r.unlink(NEW)
        r.bf().create(NEW, ERROR_RATE, CAPACITY)
        this_build = [f"guard: build {uuid.uuid4()}" for _ in range(3)]  # three: none is found by accident
        add(r, NEW, this_build)
        time.sleep(wait)  # from here on, each row is in `keys` or its insert() has found NEW
        keys = iter(database.keys())
        while batch := list(itertools.islice(keys, BATCH)):
            add(r, NEW, batch)
        r.eval(FINISH, 2, NEW, FILTER, COMPLETE, *this_build)
