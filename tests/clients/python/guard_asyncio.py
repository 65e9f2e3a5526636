"""The guard of guard.py for asyncio: lookups and inserts. guard.py builds the filter."""

import logging
import time

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from guard import COMPLETE, FILTER, LONGEST_INSERT, LONGEST_TRANSACTION, NEW, PAUSE

log = logging.getLogger("guard")


def connect(url, timeout):
    """A client that waits `timeout` seconds at most and tries once; redis-py 8 may try for 5 seconds by default."""
    return redis.asyncio.Redis.from_url(
        url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
    )


class AsyncGuard:
    def __init__(self, reader, writer, database):
        self.reader = reader  # connect(url, 0.1)
        self.writer = writer  # connect(url, 1.0)
        self.database = database  # has the coroutines get(key) and insert(key, value)
        self.failures = 0  # how often the filter gave no answer: a metric to watch
        self.resume_at = 0.0

    async def lookup(self, key):
        """The row of the key, or None. Asks the database unless the filter says that there is no such row."""
        return None if await self.is_absent(key) else await self.database.get(key)

    async def is_absent(self, key):
        """Whether the row certainly does not exist; False also if the filter cannot tell."""
        if time.monotonic() < self.resume_at:
            return False
        try:
            found, complete = await self.reader.bf().mexists(FILTER, key, COMPLETE)
            if complete:
                return not found
            problem = "there is no complete filter"
        except Exception as error:  # whatever it is, the database is asked
            problem = f"{type(error).__name__}: {error}"
        self.failures += 1
        self.resume_at = time.monotonic() + PAUSE
        log.warning("the filter gave no answer: %s", problem)
        return False

    async def insert(self, key, value):
        """Adds the key to the filters, then the row to the database. On an exception the row may be missing: try again."""
        begin = time.monotonic()  # before the first filter is asked, because build() waits from there on
        for name in (NEW, FILTER):  # in this order, because build() renames the first to the second
            try:
                answers = await self.writer.bf().insert(name, [key], noCreate=True)
                if not isinstance(answers[-1], int):  # redis-py does not raise an error that is inside an array
                    raise RuntimeError(f"the key was not added: {answers[-1]}")
            except redis.ResponseError as error:
                if str(error) != "not found":  # a filter that does not exist needs no key
                    raise
        if time.monotonic() - begin > LONGEST_INSERT - LONGEST_TRANSACTION:
            raise TimeoutError("the filters took so long that a build may miss the row")
        await self.database.insert(key, value)
