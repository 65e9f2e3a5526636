"""A guard and a crawler on a sharded filter, which docs/sharding.md specifies.

    python sharded.py SHARDS

prints the items that mark so many shards as complete.
"""

import contextlib
import logging
import sys
import threading
import time
import zlib

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

COMPLETE = "filter: complete"  # begins the items that are added last: without its one, a shard's "no" is not believed
PAUSE = 1.0  # seconds after a failure in which a shard, or the descriptor, is not asked for
LONGEST_TRANSACTION = 2.0  # seconds that database.insert() can take: its timeout, connecting and commit included
REPLICAS = 1  # how many replicas must have a key before its row is written
LEASE = 600  # seconds that a crawler has for a page
TOO_OLD = "the descriptor is too old"  # an error of this program

log = logging.getLogger("sharded")


def shard_of(item, shards):
    return zlib.crc32(item.encode()) * shards >> 32


for item, shards, shard in (("a", 8, 7), ("user:1", 1000, 482), ("münchen", 128, 34)):
    if shard_of(item, shards) != shard:
        raise AssertionError(f"shard_of({item!r}, {shards}) is not {shard}")


def markers(shards):
    """For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard."""
    found, number = {}, 0
    while len(found) < shards:
        item = f"{COMPLETE} {number}"
        found.setdefault(shard_of(item, shards), item)
        number += 1
    return [found[shard] for shard in range(shards)]


def connect(url, timeout):
    """A client of a cluster that waits `timeout` seconds at most for each reply. It cannot be made while no node answers."""
    return redis.RedisCluster.from_url(
        url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
    )


class Shards:
    """The shards of one generation: of each its key and the item that marks it as complete."""

    def __init__(self, fields, prefix=""):
        def number(name, kind, possible):
            value = kind(fields[prefix + name])
            if not possible(value):
                raise ValueError(f"{prefix}{name} is {value}")
            return value

        count = number("shards", int, lambda count: 1 <= count <= 1024)
        self.generation = number("generation", int, lambda generation: generation >= 1)
        number("error", float, lambda rate: 0 < rate < 1)  # these two have no use here, but a hash without them is damaged
        number("capacity", int, lambda items: items >= 1)
        self.shards = list(zip([fields[f"{prefix}{i}"] for i in range(count)], markers(count)))

    def group(self, items):
        """The items by shard: key, mark, items."""
        groups = {}
        for item in items:
            groups.setdefault(shard_of(item, len(self.shards)), []).append(item)
        return [(*self.shards[shard], group) for shard, group in groups.items()]


class Descriptor:
    def __init__(self, hash):
        fields = {field.decode(): value for field, value in hash.items()}
        rule, state = fields.get("rule"), fields.get("state")
        if rule != b"crc32" or state != b"ready":
            raise ValueError(f"no filter that this client can use: rule {rule}, state {state}")
        self.current = Shards(fields)
        self.next, self.damage = None, None
        if any(field.startswith("next.") for field in fields):
            try:
                if fields.get("next.rule", b"crc32") != b"crc32":
                    raise ValueError(f"next.rule is {fields['next.rule']}")
                self.next = Shards(fields, "next.")
            except (KeyError, ValueError) as error:  # a rebuild might lose what is added now
                self.damage = f"the next generation cannot be read: {error}"
        # After a rebuild `next` is the generation before, until its shards are gone: old clients still ask those.
        self.is_rebuilt = self.next is not None and self.next.generation < self.current.generation
        self.base = fields.get("base")
        poll = fields.get("poll", b"")
        self.poll = int(poll) if poll.isdigit() and int(poll) > 0 else 10


def has_text(error, *texts):
    return any(text in str(error) for text in texts)


def is_stale(error):
    """Whether an error may come from a descriptor that is out of date."""
    return has_text(error, "WRONGTYPE", "belongs to shard", "not found", TOO_OLD)


class Sharded:
    """A sharded filter. Threads may share it."""

    def __init__(self, name, reader, writer):
        self.name = name
        self.reader = reader  # connect(url, 0.1)
        self.writer = writer  # connect(url, 1.0): for this object alone, so that WAIT goes over the connection of BF.INSERT
        self.writing, self.keeping = threading.Lock(), threading.Lock()
        self.known = (0.0, None)  # when the descriptor was read, and the descriptor if it can be used
        self.resume_at = {}  # by key: when it may be asked again
        self.failures = 0  # how often the filter gave no answer: a metric to watch

    def read(self, client, age):
        """When the descriptor was read, and the descriptor. Reads it again if this one is older than `age` seconds, or if
        that is None, than its `poll`. Raises if it cannot be had or used."""
        now = time.monotonic()
        read_at, descriptor = known = self.known
        if descriptor and now - read_at < (descriptor.poll if age is None else age):
            return known
        fields = client.hgetall(self.name)
        try:
            read = (now, Descriptor(fields))
        except Exception:
            self.keep((now, None))  # what was read before does not hold any more
            raise
        self.keep(read)
        return read

    def keep(self, read):
        with self.keeping:
            if read[0] >= self.known[0]:  # else another thread has read a newer one meanwhile
                self.known = read

    def ask(self, items):
        """By item: True, False, or None if there is no answer. Never raises."""
        answers, stale = dict.fromkeys(items), []
        self.ask_once(list(answers), answers, None, stale)
        if stale:
            self.ask_once(stale, answers, 0.0, None)
        return answers

    def ask_once(self, items, answers, age, stale):
        """Puts answers into `answers`, and into `stale` the items to ask again, with a descriptor that is read again."""
        _, descriptor = self.known
        if self.may_ask(self.name):
            try:
                _, descriptor = self.read(self.reader, age)
            except Exception as error:  # the one that was read last: its shards answer for themselves
                _, descriptor = self.known
                self.fail(self.name, error)
        if not descriptor:
            return
        for key, mark, group in descriptor.current.group(items):
            self.ask_filter(key, mark, group, answers, stale)
        absent = [item for item in items if answers[item] is False]
        if descriptor.base and absent:
            self.ask_filter(descriptor.base, COMPLETE, absent, answers, stale)

    def ask_filter(self, key, mark, items, answers, stale):
        answers.update(dict.fromkeys(items))
        if not self.may_ask(key):
            return
        try:
            *found, complete = self.reader.execute_command("BF.MEXISTS", key, *items, mark)
            if isinstance(complete, Exception):  # redis-py does not raise an error that is inside an array
                raise complete
            answers.update((item, bool(yes) or (False if complete else None)) for item, yes in zip(items, found))
            if not complete:
                self.fail(key, "it is lost, or not complete")
        except Exception as error:
            if stale is not None and is_stale(error):
                stale += items
            else:
                self.fail(key, error)

    def may_ask(self, key):
        return time.monotonic() >= self.resume_at.get(key, 0.0)

    def fail(self, key, problem):
        """Notes that a key gave no answer, and leaves it alone for a while."""
        self.failures += 1
        self.resume_at[key] = time.monotonic() + PAUSE
        log.warning("%s gave no answer: %s", key, problem)

    def add(self, items, replicas=0):
        """Adds items; returns the descriptor that says where. If it raises, some may be missing: try again."""
        with self.writing:
            try:
                return self.add_once(items, replicas, None)
            except Exception as error:
                if not is_stale(error):
                    raise
                return self.add_once(items, replicas, 0.0)

    def add_once(self, items, replicas, age):
        read_at, descriptor = self.read(self.writer, age)
        if descriptor.damage:
            raise ValueError(descriptor.damage)

        def check_age():  # whoever rebuilds the filter counts on every addition to be done by then
            if time.monotonic() > read_at + 2 * descriptor.poll:
                raise TimeoutError(TOO_OLD)

        for key, _, group in descriptor.current.group(items):
            check_age()
            self.insert(key, group, replicas)
        for key, _, group in descriptor.next.group(items) if descriptor.next else ():
            check_age()
            try:
                self.insert(key, group, replicas)
            except redis.ResponseError as error:
                if not descriptor.is_rebuilt or not has_text(error, "WRONGTYPE", "not found"):
                    raise  # else an old shard is gone, and the current ones have the items
        check_age()
        return descriptor

    def insert(self, key, items, replicas):
        last = self.writer.execute_command("BF.INSERT", key, "NOCREATE", "ITEMS", *items)[-1]
        if isinstance(last, Exception):
            raise last
        if not replicas:
            return
        # WAIT waits for what its connection has written, and BF.INSERT writes nothing if the filter has the items.
        self.writer.execute_command("SET", key.partition(b"}")[0] + b"}:wait", 1, "EX", 60)
        node = self.writer.get_node_from_key(key)
        if self.writer.execute_command("WAIT", replicas, 500, target_nodes=node) < replicas:
            raise TimeoutError("too few replicas have the items")


class Guard:
    """Asks the database only for keys that the filter has, or gives no answer for."""

    def __init__(self, filter, database):
        self.filter = filter
        self.database = database  # has get(key) and insert(key, value)

    def lookup(self, key):
        """The row of the key, or None."""
        return None if self.filter.ask([key])[key] is False else self.database.get(key)

    def insert(self, key, value):
        """Adds the key to the filter, then the row to the database. If it raises, the row may be missing: try again."""
        begin = time.monotonic()
        descriptor = self.filter.add([key], REPLICAS)
        if time.monotonic() - begin > descriptor.poll - LONGEST_TRANSACTION:
            raise TimeoutError("the filter took so long that a rebuild may miss the row")
        self.database.insert(key, value)


class Crawler:
    """Claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key."""

    def __init__(self, filter, cluster):
        self.filter = filter
        self.cluster = cluster  # connect(url, 1.0), for the claims

    def claim(self, urls):
        """Which of the URLs are the caller's to fetch, for LEASE seconds, and which to offer again later."""
        mine, new, later = [], [], []
        for url in dict.fromkeys(urls):
            try:
                if self.cluster.set(f"claim:{url}", "mine", nx=True, ex=LEASE):
                    mine.append(url)
            except redis.RedisError:
                later.append(url)
        answers = self.filter.ask(mine)  # after the claim: whoever ends one has marked the page before
        for url in mine:
            if answers[url] is False:
                new.append(url)
                continue
            if answers[url] is None:
                later.append(url)
            self.release(url)
        return new, later

    def fetched(self, url):
        """Marks a page after it was fetched and its results are stored. If it raises, try again within LEASE."""
        self.filter.add([url])
        self.release(url)

    def release(self, url):
        with contextlib.suppress(redis.RedisError):  # the claim ends by itself after LEASE
            self.cluster.unlink(f"claim:{url}")


if __name__ == "__main__":
    print(*markers(int(sys.argv[1])), sep="\n")
