"""The guards and crawlers of docs/recipes/sharded.md on a cluster, whatever happens to their filter.

Each runs in a process of its own (sharded_worker.py says what it reads and prints) and looks rows up and inserts
some all the time. Whatever happens, no lookup raises, and none misses a row that exists.
"""

import contextlib
import itertools
import os
import pathlib
import re
import sys
import time
import unittest

import redis

import sharded
from cluster import Cluster, Filter, keys
from server import until
from test_guard import Worker

ROOT = pathlib.Path(__file__).parents[3]
ROWS = [f"user:{number}" for number in range(2000)]
VECTOR = re.compile(r"^\| (?:\(empty\)|`([^`]*)`) \| ([0-9a-f]{8}) \|(.*)\|$", re.MULTILINE)
PROGRAMS = {
    "redis-py": [sys.executable, "tests/clients/python/sharded_worker.py"],
    "node-redis": ["node", "tests/clients/node/sharded-worker.mjs"],
    "redis-rs": [os.environ["SHARDED_WORKER_RS"]],
    "phpredis": ["php", "tests/clients/php/sharded-worker.php"],
    "redigo": [os.environ["SHARDED_WORKER_GO"]],
    "Java without a library": ["java", "-cp", os.environ["SHARDED_WORKER_JAVA"], "ShardedWorker"],
}


class Sharded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.workers = []
        for name, command in PROGRAMS.items():
            cls.workers.append(Worker(name, command, cls.cluster.url))
            cls.addClassCleanup(cls.workers[-1].close)

    def setUp(self):
        self.client = self.cluster.client()
        self.addCleanup(self.client.close)
        self.client.flushall(target_nodes="primaries")
        self.name = self.id().rpartition(".")[2]
        self.begin = {worker: len(worker.logged().encode()) for worker in self.workers}

    def tearDown(self):
        for worker in self.workers:
            self.assertIsNone(worker.broken, f"{worker.name}\n{worker.logged()}")

    def filter(self, shards=4, word="", **fields):
        """A filter that has all rows and is complete; all guards use it, all the time unless `word` is `idle`."""
        filter = Filter(self.client, self.name, shards, **fields)
        filter.load(filter.keys, ROWS)
        filter.mark(filter.keys)
        self.ask(f"use {self.name} {word}".strip())
        self.guarded(filter)
        return filter

    def ask(self, command, expected="ok"):
        for worker in self.workers:
            self.assertRegex(worker.ask(command), f"^({expected})$", f"{worker.name}: {command}\n{worker.logged()[-2000:]}")

    def until_answer(self, worker, command, expected):
        """A try may fail: on a busy machine a reply may be late."""
        until(lambda: re.fullmatch(expected, worker.ask(command)), f"{worker.name} answers {command}\n{worker.logged()[-2000:]}")

    def insert(self, key):
        """All guards insert the row. A try may fail: on a busy machine a reply may be late."""
        for worker in self.workers:
            self.until_answer(worker, f"insert {key}", "ok")

    def refused(self, key, why):
        for worker in self.workers:
            self.until_answer(worker, f"insert {key}", f"raised.*{why}.*")

    def found(self, worker):
        """Each row of the guard is found."""
        keys = worker.ask("keys").split()
        for start in range(0, len(keys), 500):
            answers = worker.ask("lookup " + " ".join(keys[start : start + 500])).split()
            self.assertEqual(set(answers), {"row?"}, worker.name)
        return keys

    def shard(self, shard, shards, what):
        """Ten items of a shard."""
        items = (f"{what}:{number}" for number in range(100_000))
        own = (item for item in items if sharded.shard_of(item, shards) == shard)
        return [next(own) for _ in range(10)]

    def answers(self, items, expected):
        """Each guard answers for all items, or for all but one: a false positive of a probability of 0.001.

        Of ten absent items two or more are false positives with a probability of 4.5e-5.
        """
        for worker in self.workers:
            found = worker.ask("lookup " + " ".join(items)).split()
            wrong = [answer for answer in found if answer != expected]
            allowed = expected == "none"
            self.assertLessEqual(len(wrong), allowed, f"{worker.name}: {found}\n{worker.logged()[-2000:]}")

    def guarded(self, filter, shards=None):
        """Until each guard spares the database absent rows of these shards; rows that exist are found."""
        for shard in range(len(filter.keys)) if shards is None else shards:
            absent = self.shard(shard, len(filter.keys), "absent")
            for worker in self.workers:
                spared = lambda: worker.ask("lookup " + " ".join(absent)).split().count("none") >= 9
                until(lambda: worker.broken or spared(), f"{worker.name} is guarded\n{worker.logged()[-2000:]}")

    def unguarded(self, filter, shard):
        """Until each guard asks the database for all absent rows of a shard."""
        absent = self.shard(shard, len(filter.keys), "absent")
        for worker in self.workers:
            asked = lambda: worker.ask("lookup " + " ".join(absent)).split().count("none?") == 10
            until(lambda: worker.broken or asked(), f"{worker.name} asks the database\n{worker.logged()[-2000:]}")
        self.answers(self.shard(shard, len(filter.keys), "user")[:1], "row?")

    def logs(self, text):
        for worker in self.workers:
            until(lambda: re.search(text, worker.logged()), f"the log of {worker.name} has {text}")

    @contextlib.contextmanager
    def transaction(self, key):
        """A MULTI on the node of a key."""
        with redis.Redis(port=self.client.get_node_from_key(key).port) as node, node.pipeline() as pipeline:
            yield pipeline
            pipeline.execute()

    def bury(self, keys):
        """Puts tombstones in the place of old shards."""
        for key in keys:
            with self.transaction(key) as pipeline:
                pipeline.unlink(key)
                pipeline.set(key, "moved to 2", ex=604_800)

    # What all clients have to agree on.

    def test_the_rule(self):
        vectors = VECTOR.findall((ROOT / "docs/sharding.md").read_text())
        self.assertGreaterEqual(len(vectors), 8)
        shards = (2, 3, 8, 16, 64, 128, 1000)
        for item, _, row in vectors:
            if item and " " not in item:
                for count, shard in zip(shards, row.split("|"), strict=True):
                    self.ask(f"shard {count} {item}", shard.strip())
        items = [f"item:{number}" for number in range(100)]
        for count in (1, 7, 1024):
            expected = " ".join(str(sharded.shard_of(item, count)) for item in items)
            self.ask(f"shard {count} {' '.join(items)}", expected)

    def test_the_page_names_what_is_tested(self):
        page = (ROOT / "docs/recipes/sharded.md").read_text()
        run = re.findall(r"^\| \[.*?\| (.*?) \| yes \|$", page, re.MULTILINE)
        names = ["none: sockets" if name.startswith("Java") else name for name in PROGRAMS]
        self.assertEqual([any(client.startswith(name) for client in run) for name in names], [True] * len(run))

    def test_the_markers(self):
        for shards in (1, 3, 128, 1024):
            self.ask(f"markers {shards}", ",".join(sharded.markers(shards)))

    def test_the_keys_of_the_tests_are_those_of_the_specification(self):
        self.assertEqual(keys("urls", 2, 1), ["{urls:5968}:1", "{urls:1796}:1"])
        self.assertEqual(keys("users", 8, 3)[:2], ["{users:4795}:3", "{users:4358}:3"])

    # The guard.

    def test_a_rebuild_under_traffic(self):
        old = self.filter()
        new = keys(self.name, 3, 2)
        old.reserve(new)
        following = {"next.shards": 3, "next.generation": 2, "next.error": 0.001, "next.capacity": 100_000}
        following.update((f"next.{number}", key) for number, key in enumerate(new))
        self.client.hset(self.name, mapping=following)
        time.sleep(2 * 3)  # twice `poll`
        self.insert("during-the-rebuild")
        rows = [set(worker.ask("keys").split()) for worker in self.workers]
        old.load(new, sorted(set().union(*rows)))
        old.mark(new)
        with self.transaction(self.name) as swap:
            swap.hset(self.name, mapping={field.replace("next.", ""): value for field, value in following.items()})
            swap.hdel(self.name, "3", *following)
        self.bury(old.keys)
        self.insert("after-the-rebuild")
        for worker in self.workers:
            self.assertGreater(len(self.found(worker)), len(ROWS) + 2, f"{worker.name} inserted nothing else")
            self.assertNotIn("WRONGTYPE", worker.logged(self.begin[worker]), worker.name)  # it asked again
        old.keys = new
        self.guarded(old)
        last = new[sharded.shard_of("after-the-rebuild", 3)]
        self.assertTrue(self.client.bf().exists(last, "after-the-rebuild"))

    def test_a_rebuild_that_a_client_has_slept_through(self):
        """The descriptor is not due to be read again: only the tombstones tell."""
        filter = self.filter(word="idle", poll=100_000)
        for generation, shards in ((2, 8), (3, 3)):
            old, filter.keys = filter.keys, keys(self.name, shards, generation)
            filter.reserve(filter.keys)
            filter.load(filter.keys, [*ROWS, "late"] if generation == 3 else ROWS)
            filter.mark(filter.keys)
            self.client.hset(self.name, mapping={"shards": shards, **dict(enumerate(filter.keys))})
            self.bury(old)
            if generation == 2:
                self.insert("late")
            else:
                self.guarded(filter)
            for worker in self.workers:
                self.found(worker)
                self.assertNotIn("WRONGTYPE", worker.logged(self.begin[worker]), worker.name)  # it asked again

    def test_a_rebuild_that_is_broken_off(self):
        filter = self.filter()
        new = keys(self.name, 2, 2)
        filter.reserve(new)
        following = {"next.shards": 2, "next.generation": 2, "next.error": 0.001, "next.capacity": 100_000}
        following.update((f"next.{number}", key) for number, key in enumerate(new))
        self.client.hset(self.name, mapping=following)
        time.sleep(3)
        self.insert("one")
        self.client.hdel(self.name, *following)
        self.client.unlink(new[0])
        self.client.unlink(new[1])
        self.insert("two")  # a client that has not read the descriptor since finds that the shard is gone
        self.guarded(filter)

    def test_a_shard_is_lost_and_made_anew(self):
        filter = self.filter()
        lost, *others = self.shard(2, 4, "row")
        self.insert(lost)
        self.client.unlink(filter.keys[2])
        self.unguarded(filter, 2)
        self.guarded(filter, [0, 1, 3])
        self.logs("it is lost, or not complete")
        self.refused(others[0], "not found")
        self.insert(self.shard(1, 4, 'row')[0])
        self.answers([lost], "row?")
        # As a client does that uses BF.ADD.
        self.client.bf().add(filter.keys[2], others[0])
        self.unguarded(filter, 2)
        self.client.unlink(filter.keys[2])
        # The repair: inserts work again at once; the shard is believed when it is marked.
        filter.reserve(filter.keys, 2)
        self.insert(others[1])
        self.unguarded(filter, 2)
        rows = {key for worker in self.workers for key in worker.ask("keys").split()}
        filter.load(filter.keys, sorted(rows), 2)
        filter.mark(filter.keys, 2)
        self.guarded(filter)
        self.answers([lost, others[1]], "row?")

    def test_missing_filters_are_errors(self):
        filter = self.filter()
        for node in self.cluster.nodes:
            self.set_missing_key_error(node, "yes")
            self.addCleanup(self.set_missing_key_error, node, "no")
        self.client.unlink(filter.keys[0])
        self.unguarded(filter, 0)
        self.guarded(filter, [1, 2, 3])

    def set_missing_key_error(self, node, value):
        with node.client() as client:
            (setting,) = client.config_get("bf?missing-key-error")
            client.config_set(setting, value)

    def test_the_keys_of_two_shards_are_exchanged(self):
        """As with a wrong rule: the filters refuse items of other shards."""
        filter = self.filter()
        self.client.hset(self.name, mapping={"0": filter.keys[1], "1": filter.keys[0]})
        self.unguarded(filter, 0)
        self.refused(self.shard(1, 4, 'row')[1], "belongs to shard")
        self.guarded(filter, [2, 3])
        self.client.hset(self.name, mapping=dict(enumerate(filter.keys)))
        self.guarded(filter)

    def test_the_descriptor_cannot_be_used(self):
        filter = self.filter()
        hash = self.client.hgetall(self.name)
        changes = {
            "an unknown rule": lambda: self.client.hset(self.name, "rule", "crc64"),
            "no rule": lambda: self.client.hdel(self.name, "rule"),
            "half-written": lambda: self.client.hset(self.name, "state", "creating"),
            "an unknown state": lambda: self.client.hset(self.name, "state", "sealed"),
            "too many shards": lambda: self.client.hset(self.name, "shards", 1025),
            "no number": lambda: self.client.hset(self.name, "shards", "four"),
            "no capacity": lambda: self.client.hdel(self.name, "capacity"),
            "a generation that is none": lambda: self.client.hset(self.name, "generation", "0"),
            "a key missing": lambda: self.client.hdel(self.name, "3"),
            "no descriptor": lambda: self.client.unlink(self.name),
            "another type": lambda: (self.client.unlink(self.name), self.client.set(self.name, "text")),
        }
        for what, change in changes.items():
            with self.subTest(what):
                change()
                self.ask(f"use {self.name}")
                self.answers(self.shard(0, 4, "absent"), "none?")
                self.answers(ROWS[:10], "row?")
                self.ask("insert new", "raised.*")
                self.ask("claim https://example.com/", "new  later https://example.com/")
            self.client.unlink(self.name)
            self.client.hset(self.name, mapping=hash)
            self.guarded(filter)
        # One that becomes unusable is not used any further.
        self.client.hset(self.name, "rule", "crc64")
        self.unguarded(filter, 0)
        self.refused("new", "crc64")

    def test_a_half_written_next_generation_is_ignored(self):
        filter = self.filter()
        some = {"next.shards": 1, "next.generation": 2, "next.error": 0.001, "next.capacity": 100_000, "next.0": "{x}:2"}
        for missing in some:
            self.client.hdel(self.name, *some)
            fields = {field: value for field, value in some.items() if field != missing}
            self.client.hset(self.name, mapping={**fields, "poll": "often"})
            self.ask(f"use {self.name} idle")
            self.insert("new")
        self.guarded(filter)

    def test_a_base(self):
        """A filter in one key, which has older rows."""
        filter = Filter(self.client, self.name, 4, base=f"{self.name}-base")
        base = f"{self.name}-base"
        self.client.bf().reserve(base, 0.001, 100_000)
        self.client.bf().madd(base, *ROWS[:1000], *ROWS[1000:])
        self.ask(f"use {self.name}")
        self.answers(self.shard(0, 4, "absent"), "none?")  # neither is marked as complete
        self.client.bf().add(base, sharded.COMPLETE)
        filter.mark(filter.keys)
        self.guarded(filter)
        self.insert("new")
        self.answers([*ROWS[:10], "new"], "row?")
        self.client.unlink(base)
        for shard in range(4):
            self.unguarded(filter, shard)

    def test_a_slot_moves(self):
        filter = self.filter()
        key = filter.keys[0]
        slot = self.client.keyslot(key)
        source, target = (self.cluster.nodes[i] for i in (0, 1))
        ids = self.cluster.ids
        run = self.cluster.run
        self.assertEqual(run(source, "CLUSTER GETKEYSINSLOT", slot, 10), [key])
        run(target, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        run(source, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        run(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        self.insert(self.shard(0, 4, 'moved')[0])  # by ASK
        self.guarded(filter)
        for node in (target, source, self.cluster.nodes[2]):
            run(node, "CLUSTER SETSLOT", slot, "NODE", ids[1])
        self.insert(self.shard(0, 4, 'moved')[1])  # by MOVED
        self.guarded(filter)
        self.answers(self.shard(0, 4, "moved")[:2], "row?")

    def test_zz_a_primary_is_killed(self):
        """The last test, since it leaves another primary behind. No row that was inserted is lost with it."""
        filter = self.filter(8)
        victim = self.cluster.nodes[1]
        lost = [i for i, key in enumerate(filter.keys) if self.client.get_node_from_key(key).port == victim.port]
        self.assertTrue(lost)
        until(lambda: all(len(worker.ask("keys").split()) > len(ROWS) + 10 for worker in self.workers), "rows are inserted")
        victim.kill()
        for worker in self.workers:
            before = len(worker.rounds)
            until(lambda: worker.broken or len(worker.rounds) > before + 3, f"{worker.name} goes on")
        self.guarded(filter)  # the replica has taken over
        self.answers(ROWS[:10], "row?")
        victim.start()
        self.cluster.wait_until_up()
        for worker in self.workers:
            self.found(worker)
        for shard in range(8):
            self.insert(self.shard(shard, 8, "after")[0])
        self.guarded(filter)

    # The crawler.

    def test_the_crawler(self):
        filter = self.filter()
        lost = f"https://example.com/{next(i for i in range(100) if sharded.shard_of(f'https://example.com/{i}', 4) == 2)}"
        for worker in self.workers:
            urls = (f"https://example.com/{worker.name.replace(' ', '-')}/{number}" for number in range(100))
            one, two = itertools.islice((url for url in urls if sharded.shard_of(url, 4) != 2), 2)
            self.until_answer(worker, f"claim {one} {one}", f"new {one} later")
            self.until_answer(worker, f"claim {two}", f"new {two} later")
            self.assertEqual(worker.ask(f"claim {one} {two}"), "new  later")
            self.until_answer(worker, f"fetched {one}", "ok")
            self.client.unlink(f"claim:{two}")  # its crawler died
            self.until_answer(worker, f"claim {one}", "new  later")
            self.until_answer(worker, f"claim {two}", f"new {two} later")
        self.client.unlink(filter.keys[2])
        for worker in self.workers:
            self.assertEqual(worker.ask(f"claim {lost}"), f"new  later {lost}")
            self.until_answer(worker, f"fetched {lost}", "raised.*not found.*")
            self.assertFalse(self.client.exists(f"claim:{lost}"))


if __name__ == "__main__":
    unittest.main()
