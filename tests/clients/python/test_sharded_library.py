"""The ShardedFilter of each library on a cluster, whatever happens to its shards and its descriptor.

Each runs in a process of its own (filter_worker.*), which reads commands and answers each with a line:

    add ITEM ...   `ok`
    mark           `ok`
    has ITEM ...   for each item 1, 0, or ? if there is no answer that can be trusted

A line that begins with `raised` is an error. Whatever happens, no item is hidden whose addition was answered.
"""

import contextlib
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time
import types
import unittest
import unittest.mock

import redis
from redis_bloom import ShardedFilter
from redis_bloom._steps import run
from redis_bloom.sharded import shard_of

from cluster import Cluster, Filter, fields_of, keys
from server import until

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = [sys.executable, "tests/clients/python/filter_worker.py"]
PROGRAMS = {  # with what follows the name of the filter and the URL
    "redis-py": (PYTHON, "sync"),
    "redis-py asyncio": (PYTHON, "asyncio"),
    "node-redis": (["node", "tests/clients/node/filter-worker.mjs"],),
    "redis-rs": ([os.environ["FILTER_WORKER_RS"]], "blocking"),
    "redis-rs tokio": ([os.environ["FILTER_WORKER_RS"]], "tokio"),
}
ITEMS = [f"user:{number}" for number in range(200)]
NEVER = 100_000  # seconds of `poll`, after which no test waits


class Client(unittest.TestCase):
    """What a test on a cluster cannot time: the library for Python without a server."""

    DESCRIPTOR = {**fields_of(["{x}:1"], 1), **fields_of(["{y}:2"], 2, "next."), "rule": "crc32", "state": "ready", "poll": 10}

    def setUp(self):
        self.now = 1000.0
        clock = unittest.mock.patch("redis_bloom.sharded.time.monotonic", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.reads, self.sent, self.delays, self.replies = 0, [], {}, []
        self.filter = ShardedFilter(self, "x")

    def hgetall(self, _):
        self.reads += 1
        return {field.encode(): str(value).encode() for field, value in self.DESCRIPTOR.items()}

    def execute_command(self, command, key, *words):
        """Each command takes a second, or as long as `delays` says."""
        self.now += self.delays.pop(len(self.sent), 1)
        self.sent.append(key)
        reply = self.replies.pop(0) if self.replies else [1] * len(words)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def test_an_addition_that_is_not_done_in_time_is_routed_anew(self):
        self.filter.add(["a"])
        self.now += 7  # the descriptor is 9 seconds old
        self.filter.add(["a"])
        self.assertEqual((self.sent, self.reads), ([b"{x}:1", b"{y}:2"] * 2, 1))
        self.now = 1009.9
        self.delays = {4: 10.2}  # the first command ends 20.1 seconds after the descriptor was read
        self.filter.add(["a"])
        self.assertEqual(self.sent[4:], [b"{x}:1", b"{x}:1", b"{y}:2"], "the second one is not sent")
        self.assertEqual(self.reads, 2)
        self.delays = {8: 20.0}  # the last command ends too late
        self.filter.add(["a"])
        self.assertEqual(self.sent[7:], [b"{x}:1", b"{y}:2"] * 2)
        self.delays = {11: 21.0, 13: 21.0}  # too late twice
        with self.assertRaisesRegex(TimeoutError, "too old"):
            self.filter.add(["a"])

    def test_an_item_of_another_shard_is_found_in_both_forms_of_the_error(self):
        """Servers answer it to a query as the whole reply, or as the last element of an array."""
        error = redis.ResponseError("item belongs to shard 5 of 8")
        for number, reply in enumerate((error, [0, error]), 1):
            self.replies = [reply]
            with self.subTest(reply=reply):
                self.now += 1
                self.assertEqual(self.filter.has(["a"]), [True])
                self.assertEqual((self.reads, self.filter.failures), (number + 1, 0), "it is read again")

    def test_a_shard_that_stays_gone_is_a_failure(self):
        self.replies = [redis.ResponseError("not found")] * 2
        self.assertEqual(self.filter.has(["a"]), [None])
        self.assertEqual((self.filter.failures, len(self.sent)), (1, 2))

    def test_a_client_that_reads_from_replicas_is_refused(self):
        for option in "read_from_replicas", "load_balancing_strategy":
            with self.assertRaises(ValueError):
                ShardedFilter(types.SimpleNamespace(**{option: 1}), "x")

    def test_a_descriptor_is_replaced_by_a_newer_one_only(self):
        """As when another thread reads it while this one waits for its reply."""
        slow = self.filter._read(True)
        step = next(slow)
        self.now += 20
        newer = run(self.filter._read(True))
        with self.assertRaises(StopIteration):
            slow.send(step())
        self.assertIs(self.filter._known, newer)
        self.assertEqual(newer.read_at, 1020.0)

    def test_the_keys_of_the_tests_are_those_of_the_specification(self):
        self.assertEqual(keys("urls", 2, 1), ["{urls:5968}:1", "{urls:1796}:1"])
        self.assertEqual(keys("users", 8, 3)[:2], ["{users:4795}:3", "{users:4358}:3"])


class Worker:
    def __init__(self, name, filter, url, command, *words):
        self.name = name
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*command, filter, url, *words], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.added = []  # what its traffic has added

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def has(self, items):
        answers = self.ask("has", *items)
        assert re.fullmatch(f"[01?]{{{len(items)}}}", answers), f"{self.name}: {answers}"
        return answers

    def close(self):
        self.process.communicate()


class Traffic:
    """A thread that adds items by a worker, and queries those that it has added. Nothing else uses the worker."""

    def __init__(self, worker):
        self.worker, self.ends, self.broken = worker, False, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        added = self.worker.added
        for number in itertools.count():
            if self.ends or self.broken:
                return
            item = f"{self.worker.name.replace(' ', '-')}:{number}"
            if self.worker.ask("add", item) == "ok":  # on a busy machine a reply may be late
                added.append(item)
            items = [*added[-1:], *random.sample(added, min(4, len(added)))] or ITEMS[:1]
            answers = self.worker.ask("has", *items)
            if not re.fullmatch("[1?]+", answers):
                self.broken = f"{self.worker.name} answers {answers} for {items}"
            time.sleep(0.02)  # leaves the processor to the others

    def has_added(self, count):
        until(lambda: self.broken or len(self.worker.added) >= count, f"{self.worker.name} adds items")


class Libraries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.client = self.cluster.client()
        self.addCleanup(self.client.close)
        self.name = self.id().rpartition(".")[2]
        self.workers = []

    def start(self, shards=4, **fields):
        """A complete filter with items, and the workers, which know its descriptor."""
        self.filter = Filter(self.client, self.name, shards, **{"poll": 1, **fields})
        self.restart()
        self.until_done(self.workers[0], "add", *ITEMS)
        self.until_done(self.workers[-1], "mark")
        self.all_answer()

    def restart(self, programs=tuple(PROGRAMS)):
        """New processes, which know no descriptor."""
        kept = [worker for worker in self.workers if worker.name not in programs]
        self.workers = kept
        for program in programs:
            command, *words = PROGRAMS[program]
            self.workers.append(Worker(program, self.name, self.cluster.url, command, *words))
            self.addCleanup(self.workers[-1].close)

    @contextlib.contextmanager
    def traffic(self):
        """All workers add and query all the time. At the end each has found all that it added."""
        all_traffic = [Traffic(worker) for worker in self.workers]
        try:
            yield all_traffic
        finally:
            for traffic in all_traffic:
                traffic.ends = True
            for traffic in all_traffic:
                traffic.thread.join()
        self.assertEqual([traffic.broken for traffic in all_traffic if traffic.broken], [])
        for worker in self.workers:
            until(lambda: set(worker.has(worker.added)) == {"1"}, f"{worker.name} finds all that it added")

    def until_done(self, worker, *words):
        """A try may fail: on a busy machine a reply may be late."""
        answers = []
        try:
            until(lambda: answers.append(worker.ask(*words)) or answers[-1] == "ok", words[0])
        except AssertionError as error:
            raise AssertionError(f"{worker.name}: {answers[-1]}") from error

    def all_add(self, *items):
        for worker in self.workers:
            self.until_done(worker, "add", *items)

    def refused(self, item, why):
        for worker in self.workers:
            until(lambda: re.match(f"raised .*{why}", worker.ask("add", item)), f"{worker.name} refuses: {why}")

    def none_is_hidden(self, items=ITEMS):
        for worker in self.workers:
            self.assertNotIn("0", worker.has(items), worker.name)

    def all_answer(self, items=ITEMS, shards=None):
        """Each of the items is found, and most others are not: 5 of 50 are by chance once in 10^9."""
        absent = [item for shard in shards or [None] for item in self.items("absent", 50, shard)]

        def answers(worker):
            found = worker.has(items)
            self.assertNotIn("0", found, worker.name)
            return "?" not in found and worker.has(absent).count("0") > len(absent) - 5

        for worker in self.workers:
            until(lambda: answers(worker), f"{worker.name} has answers")

    def no_answer(self, shard):
        """Nothing is known of the items of a shard, neither that they were added nor that they were not."""
        items = [*self.items("user", 3, shard), *self.items("absent", 10, shard)]
        for worker in self.workers:
            until(lambda: worker.has(items).count("?") == len(items), f"{worker.name} has no answer")

    def items(self, what, count, shard=None):
        """Some items, of one shard of the filter if it is given."""
        numbers = (f"{what}:{number}" for number in itertools.count())
        own = (item for item in numbers if shard in (None, shard_of(item, len(self.filter.keys))))
        return list(itertools.islice(own, count))

    def begin_rebuild(self, shards, generation):
        """Adds a next generation of `shards` shards to the descriptor; returns their keys."""
        new = keys(self.name, shards, generation)
        self.filter.reserve(new)
        self.client.hset(self.name, mapping=fields_of(new, generation, "next."))
        return new

    def fill(self, keys, items):
        self.filter.load(keys, items)
        self.filter.mark(keys)

    def exchange(self, new, generation):
        """Makes the next generation the current one, and that the next one; returns the old keys."""
        old, self.filter.keys = self.filter.keys, new
        with redis.Redis(port=self.client.get_node_from_key(self.name).port) as node, node.pipeline() as transaction:
            transaction.hdel(self.name, *map(str, range(len(old))), *(f"next.{number}" for number in range(len(new))))
            transaction.hset(self.name, mapping=fields_of(new, generation))
            transaction.hset(self.name, mapping=fields_of(old, generation - 1, "next."))
            transaction.execute()
        return old

    def bury(self, keys):
        """Puts tombstones in the place of old shards."""
        for key in keys:
            self.client.set(key, "moved to 2", ex=604_800)

    def end_rebuild(self, old):
        """Puts the tombstones, then deletes the generation before from the descriptor."""
        self.bury(old)
        self.client.hdel(self.name, *fields_of(old, 1, "next."))

    def test_a_rebuild_under_traffic(self):
        self.start()
        with self.traffic() as traffic:
            new = self.begin_rebuild(3, 2)
            time.sleep(2 * 1)  # twice `poll`
            self.fill(new, [*ITEMS, *(item for worker in self.workers for item in list(worker.added))])
            old = self.exchange(new, 2)
            for one in traffic:
                one.has_added(len(one.worker.added) + 5)
            self.end_rebuild(old)
            for one in traffic:
                one.has_added(len(one.worker.added) + 5)
        self.all_answer()
        for number, worker in enumerate(self.workers):
            item = f"after:{number}"
            self.until_done(worker, "add", item)
            self.assertTrue(self.client.bf().exists(new[shard_of(item, 3)], item), worker.name)

    def test_clients_with_the_old_descriptor_find_what_is_added_after_the_exchange(self):
        """Until the tombstones are there, they query the old shards: so additions go to both generations."""
        self.start(poll=NEVER)
        names = list(PROGRAMS)
        for generation, adding in enumerate((names[::2], names[1::2]), 2):
            new = self.begin_rebuild(generation + 1, generation)
            self.fill(new, ITEMS)
            old = self.exchange(new, generation)
            self.restart(adding)  # they read the descriptor of now
            adders = [worker for worker in self.workers if worker.name in adding]
            others = [worker for worker in self.workers if worker.name not in adding]
            items = [f"{generation}:{number}" for number in range(20)]
            for number, worker in enumerate(adders):
                self.until_done(worker, "add", *items[number :: len(adders)])
            for worker in others:
                until(lambda: worker.has(items) == "1" * 20, f"{worker.name}, generation {generation}")
            self.bury(old[::2])  # half of the tombstones are there: additions continue
            for worker in adders:
                self.until_done(worker, "add", "late", *items)
                self.assertTrue(self.client.bf().exists(new[shard_of("late", len(new))], "late"))
            self.end_rebuild(old)
            self.all_answer([*ITEMS, *items, "late"])

    def test_only_an_old_shard_may_be_missing(self):
        self.start()
        new = self.begin_rebuild(3, 2)
        lost = next(item for item in ITEMS if shard_of(item, 3) == 0)
        self.client.unlink(new[0])  # before the exchange, so additions would be lost
        self.refused(lost, "not found")
        self.filter.reserve(new, 0)
        self.fill(new, ITEMS)
        old = self.exchange(new, 2)
        self.client.unlink(old[0])
        self.all_add(*ITEMS)
        # Any other error of an old shard is an error.
        small = old[shard_of("another", 4)]
        self.client.unlink(small)
        self.client.execute_command("BF.RESERVE", small, 0.001, 1, "NONSCALING")
        self.client.bf().add(small, "full")
        self.refused("another", "full")

    def test_a_rebuild_that_a_client_has_slept_through(self):
        """The descriptor is not due to be read again: only the tombstones tell."""
        self.start(poll=NEVER)
        for generation, shards in ((2, 8), (3, 3)):
            old, self.filter.keys = self.filter.keys, keys(self.name, shards, generation)
            self.filter.reserve(self.filter.keys)
            self.fill(self.filter.keys, [*ITEMS, "late"] if generation == 3 else ITEMS)
            self.client.hset(self.name, mapping=fields_of(self.filter.keys, generation))
            self.bury(old)
            if generation == 2:
                self.all_add("late")
            self.none_is_hidden()
            self.all_answer([*ITEMS, "late"])

    def test_a_rebuild_that_is_broken_off(self):
        """A client that has not read the descriptor since then finds that the shard is gone."""
        self.start(poll=NEVER)
        new = self.begin_rebuild(2, 2)
        self.restart()
        self.all_add("one")
        self.assertTrue(self.client.bf().exists(new[shard_of("one", 2)], "one"))
        self.client.hdel(self.name, *fields_of(new, 2, "next."))
        for key in new:
            self.client.unlink(key)
        self.all_add("one", "two")
        self.all_answer([*ITEMS, "one", "two"])

    def test_a_shard_is_lost_and_made_anew(self):
        self.start()
        lost = self.items("user", 1, 2)[0]
        self.client.unlink(self.filter.keys[2])
        self.no_answer(2)
        self.refused(lost, "not found")
        others = [item for item in ITEMS if shard_of(item, 4) != 2]
        self.all_add(*others)
        self.all_answer(others, [0, 1, 3])
        # As a client does that uses BF.ADD.
        self.client.bf().add(self.filter.keys[2], "item")
        self.no_answer(2)
        self.client.unlink(self.filter.keys[2])
        # The repair: additions work again; the shard is believed when it is marked.
        self.filter.reserve(self.filter.keys, 2)
        self.all_add(lost)
        for worker in self.workers:
            until(lambda: worker.has(self.items("absent", 10, 2)) == "?" * 10, f"{worker.name} believes no shard without its mark")
        self.filter.load(self.filter.keys, ITEMS, 2)
        self.filter.mark(self.filter.keys, 2)
        self.all_answer()

    def test_missing_filters_are_errors(self):
        self.start()
        for node in self.cluster.nodes:
            self.set_missing_key_error(node, "yes")
            self.addCleanup(self.set_missing_key_error, node, "no")
        self.client.unlink(self.filter.keys[0])
        self.no_answer(0)
        self.all_answer([item for item in ITEMS if shard_of(item, 4)], [1, 2, 3])

    def set_missing_key_error(self, node, value):
        with node.client() as client:
            (setting,) = client.config_get("bf?missing-key-error")
            client.config_set(setting, value)

    def test_the_keys_of_two_shards_are_exchanged(self):
        """As with a wrong rule: the filters refuse items of other shards."""
        self.start()
        self.client.hset(self.name, mapping={"0": self.filter.keys[1], "1": self.filter.keys[0]})
        self.no_answer(0)
        self.refused(self.items("user", 1, 1)[0], "belongs to shard")
        self.client.hset(self.name, mapping=dict(enumerate(self.filter.keys)))
        self.all_answer()

    def test_the_descriptor_cannot_be_used(self):
        self.start()
        hash = self.client.hgetall(self.name)
        set = lambda *words, **fields: self.client.hset(self.name, *words, **fields)
        changes = {
            "an unknown rule": lambda: set("rule", "crc64"),
            "no rule": lambda: self.client.hdel(self.name, "rule"),
            "half-written": lambda: set("state", "creating"),
            "an unknown state": lambda: set("state", "sealed"),
            "too many shards": lambda: set(mapping=fields_of(["x"] * 1025, 1)),
            "no shards": lambda: set("shards", 0),
            "an error rate above 1": lambda: set("error", "2"),
            "an error rate of 0": lambda: set("error", "0"),
            "a capacity of 0": lambda: set("capacity", "0"),
            "half an item": lambda: set("capacity", "0.5"),
            "no number": lambda: set("shards", "four"),
            "no capacity": lambda: self.client.hdel(self.name, "capacity"),
            "a generation that is none": lambda: set("generation", "0"),
            "a key missing": lambda: self.client.hdel(self.name, "3"),
            "no descriptor": lambda: self.client.unlink(self.name),
        }
        for what, change in changes.items():
            with self.subTest(what):
                change()
                for shard in range(4):
                    self.no_answer(shard)
                self.refused("new", "")
            self.client.unlink(self.name)
            self.client.hset(self.name, mapping=hash)
            self.all_answer()

    def test_the_descriptor_cannot_be_read(self):
        """The last one is used for queries; a process without one has no answer."""
        self.start()
        hash = self.client.hgetall(self.name)
        self.client.unlink(self.name)
        self.client.set(self.name, "text")
        time.sleep(1.1)  # `poll`
        self.all_answer()
        self.refused("new", "")
        self.restart()
        self.no_answer(0)
        self.client.unlink(self.name)
        self.client.hset(self.name, mapping=hash)
        self.all_answer()

    def test_a_next_generation_that_cannot_be_read_stops_additions(self):
        self.start()
        whole = fields_of(["{x}:2"], 2, "next.")
        broken = {f"without {missing}": {field: whole[field] for field in whole if field != missing} for missing in whole}
        broken["of another rule"] = {**whole, "next.rule": "crc64"}
        broken["of an impossible rate"] = {**whole, "next.error": "1"}
        broken["of the current number"] = {**whole, "next.generation": "1"}
        for what, fields in broken.items():
            with self.subTest(what):
                self.client.hset(self.name, mapping=fields)
                self.refused("new", "the next generation cannot be read")
                self.all_answer()
                self.client.hdel(self.name, *fields)
        self.all_add("new")

    def test_a_poll_that_is_no_number_of_seconds_is_10(self):
        self.start()
        for poll in ("0", "-1", "often", "1.5"):
            self.client.hset(self.name, "poll", poll)
            self.restart()
            self.all_add("new")
            self.client.hset(self.name, "rule", "crc64")
            time.sleep(1.6)
            self.all_add("new")  # it is not read again yet
            self.client.hset(self.name, "rule", "crc32")

    def test_a_base(self):
        """A filter in one key, which has older items."""
        base = f"{self.name}-base"
        self.filter = Filter(self.client, self.name, 4, poll=1, base=base)
        self.filter.mark(self.filter.keys)
        self.client.bf().reserve(base, 0.001, 100_000)
        self.client.bf().madd(base, *ITEMS)
        self.restart()
        for worker in self.workers:
            absent = self.items("absent", 10)
            until(lambda: worker.has(absent) == "?" * 10, f"{worker.name} believes no base without its mark")
        self.client.bf().add(base, "filter: complete")
        self.all_add("new")
        self.all_answer([*ITEMS, "new"])
        self.client.unlink(base)
        for shard in range(4):
            self.no_answer(shard)

    def test_a_slot_moves(self):
        self.start()
        key = self.filter.keys[0]
        slot, ids, run = self.client.keyslot(key), self.cluster.ids, self.cluster.run
        source, target = self.cluster.nodes[:2]
        there = run(source, "CLUSTER GETKEYSINSLOT", slot, 100)  # also what other tests have left in it
        with self.traffic():
            run(target, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            run(source, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            run(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *there)
        self.all_answer()  # by ASK
        self.all_add(*ITEMS)
        with self.traffic():
            for node in (target, source, self.cluster.nodes[2]):
                run(node, "CLUSTER SETSLOT", slot, "NODE", ids[1])
        self.all_answer()  # by MOVED
        self.all_add(*ITEMS)

    def test_zz_a_primary_is_killed(self):
        """The last test, since it leaves another primary behind. Items that replicas have are never hidden."""
        self.start(8)
        victim = self.cluster.nodes[1]
        with victim.client() as client:
            until(lambda: client.wait(1, 1000), "the replica has all")
        victim.kill()
        for _ in range(5):
            self.none_is_hidden()
        self.all_answer()
        self.all_add("after")
        victim.start()
        self.cluster.wait_until_up()
        self.all_answer([*ITEMS, "after"])


if __name__ == "__main__":
    unittest.main()
