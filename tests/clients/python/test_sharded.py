"""The guards and crawlers of docs/recipes/sharded.md on a cluster, whatever happens to their filter.

Each runs in a process of its own (sharded_worker.py says what it reads and prints) and looks rows up and inserts
some all the time. Whatever happens, no lookup raises, and none misses a row that exists.
"""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import sys
import time
import unittest
import unittest.mock

import redis

import sharded
from cluster import Cluster, Filter, fields_of, keys
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


class Client(unittest.TestCase):
    """What a test on a cluster cannot time: sharded.py without a server."""

    DESCRIPTOR = {**fields_of(["{x}:1"], 1), **fields_of(["{y}:2"], 2, "next."), "rule": "crc32", "state": "ready", "poll": 10}

    def setUp(self):
        self.now = 1000.0
        clock = unittest.mock.patch("sharded.time.monotonic", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.reads, self.sent, self.delays, self.replies = 0, [], {}, []
        self.filter = sharded.Sharded("x", self, self)

    def hgetall(self, _):
        self.reads += 1
        return {field.encode(): str(value).encode() for field, value in self.DESCRIPTOR.items()}

    def execute_command(self, command, key, *words):
        """Each command takes a second, or as long as `delays` says."""
        self.now += self.delays.pop(len(self.sent), 1)
        self.sent.append(key)
        reply = self.replies.pop(0) if self.replies else [1] * (len(words) + 1)
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
        """Servers answer it to a question as the whole reply, or as the last element of an array."""
        error = redis.ResponseError("item belongs to shard 5 of 8")
        for number, reply in enumerate((error, [0, error]), 1):
            self.replies = [reply]
            with self.subTest(reply=reply):
                self.now += 1
                self.assertEqual(self.filter.ask(["a"]), {"a": True})
                self.assertEqual((self.reads, self.filter.failures), (number + 1, 0), "it is read again")

    def test_a_descriptor_is_replaced_by_a_newer_one_only(self):
        old = self.filter.read(self, None)
        self.now += 20
        new = self.filter.read(self, None)
        self.filter.keep(old)
        self.assertIs(self.filter.known, new)
        self.assertEqual(new[0], 1020.0)


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
        answers = []
        try:
            until(lambda: answers.append(worker.ask(command)) or re.fullmatch(expected, answers[-1]), command)
        except AssertionError as error:
            raise AssertionError(f"{worker.name} answers {answers[-1]}\n{worker.logged()[-2000:]}") from error

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
        files = re.findall(r"\]\(\.\./\.\./(tests/clients/[^)]+)\)", page)
        self.assertEqual(len(set(files)), len(PROGRAMS), "the page links to each program")
        for file in files:
            self.assertTrue((ROOT / file).is_file(), file)

    def test_the_markers(self):
        for shards in (1, 3, 128, 1024):
            self.ask(f"markers {shards}", ",".join(sharded.markers(shards)))

    def test_the_keys_of_the_tests_are_those_of_the_specification(self):
        self.assertEqual(keys("urls", 2, 1), ["{urls:5968}:1", "{urls:1796}:1"])
        self.assertEqual(keys("users", 8, 3)[:2], ["{users:4795}:3", "{users:4358}:3"])

    # The guard.

    def begin_rebuild(self, filter, shards, generation):
        """Adds a next generation of `shards` shards to the descriptor; returns their keys."""
        new = keys(self.name, shards, generation)
        filter.reserve(new)
        self.client.hset(self.name, mapping=fields_of(new, generation, "next."))
        return new

    def exchange(self, filter, new, generation):
        """Makes the next generation the current one, and that the next one; returns the old keys."""
        old, filter.keys = filter.keys, new
        with self.transaction(self.name) as transaction:
            transaction.hdel(self.name, *map(str, range(len(old))), *(f"next.{number}" for number in range(len(new))))
            transaction.hset(self.name, mapping=fields_of(new, generation))
            transaction.hset(self.name, mapping=fields_of(old, generation - 1, "next."))
        return old

    def end_rebuild(self, old):
        """Puts the tombstones, then deletes the generation before from the descriptor."""
        self.bury(old)
        self.client.hdel(self.name, *fields_of(old, 1, "next."))

    def test_a_rebuild_under_traffic(self):
        filter = self.filter()
        new = self.begin_rebuild(filter, 3, 2)
        time.sleep(2 * 3)  # twice `poll`
        self.insert("during-the-rebuild")
        rows = [set(worker.ask("keys").split()) for worker in self.workers]
        filter.load(new, sorted(set().union(*rows)))
        filter.mark(new)
        old = self.exchange(filter, new, 2)
        self.insert("after-the-exchange")
        self.end_rebuild(old)
        self.insert("after-the-rebuild")
        for worker in self.workers:
            self.assertGreater(len(self.found(worker)), len(ROWS) + 2, f"{worker.name} inserted nothing else")
            self.assertNotIn("WRONGTYPE", worker.logged(self.begin[worker]), worker.name)  # it asked again
        self.guarded(filter)
        last = new[sharded.shard_of("after-the-rebuild", 3)]
        self.assertTrue(self.client.bf().exists(last, "after-the-rebuild"))

    def test_clients_with_the_old_descriptor_find_what_is_inserted_after_the_exchange(self):
        """Until the tombstones are there, they ask the old shards: so additions go to both generations."""
        filter = self.filter(word="idle", poll=100_000)
        half = len(self.workers) // 2
        roles = (self.workers[:half], self.workers[half:]), (self.workers[half:], self.workers[:half])
        for generation, (inserters, others) in enumerate(roles, 2):
            new = self.begin_rebuild(filter, generation + 1, generation)
            filter.load(new, ROWS)
            filter.mark(new)
            old = self.exchange(filter, new, generation)
            for worker in inserters:
                self.assertEqual(worker.ask(f"use {self.name} idle"), "ok")  # it reads the descriptor of now
            for shard, key in enumerate(old):
                own = self.shard(shard, len(old), f"row-{generation}")[: len(inserters)]
                for worker, row in zip(inserters, own, strict=True):
                    self.until_answer(worker, f"insert {row}", "ok")
                for worker in others:  # `?` is a question to the database: the filter did not say no
                    answers = worker.ask("lookup " + " ".join(own)).split()
                    self.assertEqual(answers, ["none?"] * len(own), f"{worker.name}: generation {generation}, {key}")
            # Half of the tombstones are there: additions go on.
            self.bury(old[::2])
            for worker in inserters:
                for row in self.shard(0, len(old), f"late-{generation}")[:2]:
                    self.until_answer(worker, f"insert {row}", "ok")
                    self.assertTrue(self.client.bf().exists(new[sharded.shard_of(row, len(new))], row))
            self.end_rebuild(old)
            for worker in self.workers:
                self.found(worker)
            self.ask(f"use {self.name} idle")
            self.guarded(filter)

    def test_only_an_old_shard_may_be_missing(self):
        filter = self.filter(word="idle", poll=100_000)
        new = self.begin_rebuild(filter, 3, 2)
        row = self.shard(0, 3, "row")[0]
        self.client.unlink(new[0])  # before the exchange, so additions would be lost
        self.ask(f"use {self.name} idle")
        self.refused(row, "not found")
        filter.reserve(new, 0)
        filter.load(new, ROWS)
        filter.mark(new)
        old = self.exchange(filter, new, 2)
        for worker in self.workers:
            worker.ask(f"use {self.name} idle")
        self.client.unlink(*(key for key in old[:1]))
        for row in ROWS[:8]:
            self.insert(row)
        # Any other error of an old shard is an error.
        small = old[sharded.shard_of("another", 4)]
        self.client.unlink(small)
        self.client.execute_command("BF.RESERVE", small, 0.001, 1, "NONSCALING")
        self.client.bf().add(small, "full")
        self.refused("another", "full")

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
        new = self.begin_rebuild(filter, 2, 2)
        time.sleep(3)
        self.insert("one")
        self.client.hdel(self.name, *fields_of(new, 2, "next."))
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
            "too many shards": lambda: self.client.hset(self.name, mapping=fields_of(["x"] * 1025, 1)),
            "no shards": lambda: self.client.hset(self.name, "shards", 0),
            "an error rate above 1": lambda: self.client.hset(self.name, "error", "2"),
            "an error rate of 0": lambda: self.client.hset(self.name, "error", "0"),
            "a capacity of 0": lambda: self.client.hset(self.name, "capacity", "0"),
            "half an item": lambda: self.client.hset(self.name, "capacity", "0.5"),
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

    def test_a_next_generation_that_cannot_be_read_stops_additions(self):
        filter = self.filter(word="idle")
        whole = fields_of(["{x}:2"], 2, "next.")
        broken = {f"without {missing}": {field: whole[field] for field in whole if field != missing} for missing in whole}
        broken["of another rule"] = {**whole, "next.rule": "crc64"}
        broken["of an impossible rate"] = {**whole, "next.error": "1"}
        for what, fields in broken.items():
            with self.subTest(what):
                self.client.hset(self.name, mapping=fields)
                self.ask(f"use {self.name} idle")
                self.refused("new", "the next generation cannot be read")
                self.guarded(filter, [0])
                self.answers(ROWS[:10], "row?")
                self.client.hdel(self.name, *fields)
        self.ask(f"use {self.name} idle")
        self.insert("new")

    def test_a_poll_that_is_no_number_of_seconds_is_10(self):
        """A guard inserts nothing with a `poll` of 1: a transaction may take longer."""
        self.filter(word="idle")
        for poll in ("0", "-1", "often", "1.5"):
            self.client.hset(self.name, "poll", poll)
            self.ask(f"use {self.name} idle")
            self.insert("new")
        self.client.hset(self.name, "poll", "1")
        self.ask(f"use {self.name} idle")
        self.refused("new", "the filter took so long")

    def test_a_row_waits_for_a_replica_though_the_filter_has_it(self):
        """Newer servers wait for what the connection has written: nothing, if BF.INSERT answers 0."""
        filter = self.filter(word="idle")
        key = filter.keys[1]
        port = self.client.get_node_from_key(key).port
        primary = next(node for node in self.cluster.nodes if node.port == port)
        follower = {self.cluster.run(node, "INFO", "replication").get("master_port"): node for node in self.cluster.nodes}[port]
        rows = self.shard(1, 4, "row")
        self.insert(rows[0])  # its connections are there
        with primary.client() as client:
            until(lambda: client.wait(1, 1000), "the replica has all")
            follower.signal(signal.SIGSTOP)
            try:
                client.bf().add(key, rows[1])
                self.refused(rows[1], "(too few replicas|late|[Tt]ime)")
                for worker in self.workers:
                    self.assertRegex(worker.ask(f"insert {rows[1]}"), "^raised", worker.name)
            finally:
                follower.signal(signal.SIGCONT)
        self.insert(rows[1])

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
        there = run(source, "CLUSTER GETKEYSINSLOT", slot, 10)  # the shard, and perhaps the key written for WAIT
        self.assertIn(key, there)
        run(target, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        run(source, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        run(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *there)
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
