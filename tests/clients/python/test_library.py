"""Seen, ShardedFilter, bulk and the Scrapy dupefilter of clients/python, and what a lookup of the guard sends."""

import array
import asyncio
import datetime
import os
import pathlib
import re
import statistics
import time
import unittest

import numpy
import redis
import redis.asyncio

from redis_bloom import AsyncSeen, AsyncShardedFilter, Guard, Seen, ShardedFilter, bulk
from redis_bloom.sharded import marks, shard_of

ROOT = pathlib.Path(__file__).parents[3]
URL = os.environ["REDIS_URL"]


class Case(unittest.TestCase):
    def setUp(self):
        self.client = redis.Redis.from_url(URL)
        self.addCleanup(self.client.close)
        self.client.flushall()


class SeenItems(Case):
    def test_a_window_forgets_and_is_made_with_its_words(self):
        seen = Seen(self.client, "posts", capacity=1000, within=datetime.timedelta(milliseconds=400))
        self.assertEqual((seen.add("a"), seen.add("a"), seen.has("a"), seen.has("b")), (True, False, True, False))
        self.assertEqual(seen.add_many(["a", "b"]), [False, True])
        self.assertEqual(seen.has_many([b"a", "c"]), [True, False])
        self.assertEqual((seen.add_many([]), seen.has_many([]), seen.claim([])), ([], [], []))
        time.sleep(0.6)
        self.assertFalse(seen.has("a"))
        self.client.unlink("posts")
        self.assertTrue(seen.add("a"))
        window = self.client.eval("return redis.call('BF.INFO', KEYS[1], 'WINDOW')[1]", 1, "posts")
        self.assertIn(400, window)
        other = Seen(self.client, "posts", capacity=1000, within=datetime.timedelta(days=7), refresh=False)
        with self.assertRaisesRegex(redis.ResponseError, "window"):
            other.add("a")

    def test_an_error_in_an_array_is_raised(self):
        self.client.execute_command("BF.RESERVE", "full", 0.000001, 2, "NONSCALING")
        with self.assertRaisesRegex(redis.ResponseError, "full"):
            Seen(self.client, "full", capacity=2).add_many(["a", "b", "c"])

    def test_each_item_is_claimed_once(self):
        one, two = (Seen(self.client, "pages", capacity=1000, lease=0.3) for _ in range(2))
        self.assertEqual(one.claim(["a", "b", "a"]), ["a", "b"])
        self.assertEqual(two.claim(["a", "b", "c"]), ["c"])
        one.done("a")
        two.release("c")
        self.assertEqual(one.claim(["a", "c"]), ["c"])
        time.sleep(0.4)  # the lease of b ends
        self.assertEqual(two.claim(["a", "b"]), ["b"])
        self.assertEqual(one.claim([]), [])

    def test_a_claim_that_fails_leaves_no_claims(self):
        self.client.set("pages", "no filter")
        with self.assertRaises(redis.ResponseError):
            Seen(self.client, "pages", capacity=1000).claim(["a", "b"])
        self.assertEqual(self.client.keys(), [b"pages"])

    def test_asyncio(self):
        async def scenario():
            client = redis.asyncio.Redis.from_url(URL)
            seen = AsyncSeen(client, "pages", capacity=1000)
            self.assertEqual(await seen.claim(["a", "b"]), ["a", "b"])
            await seen.done("a")
            self.assertEqual((await seen.has("a"), await seen.add("b"), await seen.claim(["a"])), (True, True, []))
            await client.aclose()

        asyncio.run(scenario())


class Bulk(Case):
    def test_items_of_all_kinds(self):
        items = [f"user:{i}" for i in range(25_003)]
        for kind, given in (("list", items), ("iterator", iter(items)), ("bytes", [one.encode() for one in items])):
            with self.subTest(kind):
                self.client.unlink("users")
                new = bulk.add(self.client, "users", given, "CAPACITY", 30_000, "ERROR", 0.0001)
                self.assertEqual(len(new), len(items))
                self.assertEqual(new.count(), sum(new))
                # 25,003 items at a rate of 0.0001: 2.5 are known by chance at most; 20 are 1e-11.
                self.assertGreater(new.count(), len(items) - 20)
                known = bulk.exists(self.client, "users", [*items[::3], "nobody", "", "x" * 300])
                self.assertTrue(all(list(known)[:-3]))
                bits = numpy.unpackbits(numpy.frombuffer(known.bits, numpy.uint8), count=len(known))
                self.assertEqual(bits.tolist(), list(known))
                bits = numpy.unpackbits(numpy.frombuffer(known.bits, numpy.uint8), count=len(known))
                self.assertEqual(bits.tolist(), list(known))
                self.assertEqual((known[-1], known[0]), (list(known)[-1], True))
        self.assertEqual((list(bulk.exists(self.client, "users", [])), bulk.add(self.client, "users", []).bits), ([], b""))

    def test_buffers_are_sent_as_they_are(self):
        numbers = numpy.arange(20_001, dtype="<u8")
        bulk.add(self.client, "numbers", numbers, "CAPACITY", 30_000)
        self.assertTrue(all(bulk.exists(self.client, "numbers", array.array("Q", range(20_001)))))
        self.assertTrue(all(bulk.exists(self.client, "numbers", [number.tobytes() for number in numbers])))
        for wrong, error in (("text", TypeError), (b"bytes", TypeError), (numbers[::2], ValueError)):
            with self.assertRaises(error):
                bulk.exists(self.client, "numbers", wrong)

    def test_a_client_that_decodes_replies(self):
        with redis.Redis.from_url(URL, decode_responses=True) as client:
            self.assertEqual(list(bulk.add(client, "users", ["a", "b"])), [True, True])
            self.assertEqual(list(bulk.exists(client, "users", ["a", "b", "c"])), [True, True, False])

    def test_a_full_filter_says_what_was_added(self):
        self.client.execute_command("BF.RESERVE", "full", 0.000001, 2, "NONSCALING")
        with self.assertRaisesRegex(bulk.PartlyDone, "2 items were added, then: .*full") as raised:
            bulk.add(self.client, "full", ["a", "b", "c"])
        self.assertEqual(list(raised.exception.answers), [True, True])

    def test_asyncio(self):
        async def items():
            for i in range(10_001):
                yield f"user:{i}"

        async def scenario():
            client = redis.asyncio.Redis.from_url(URL)
            self.assertEqual(len(await bulk.aadd(client, "users", items(), "CAPACITY", 20_000)), 10_001)
            self.assertTrue(all(await bulk.aexists(client, "users", items())))
            await client.aclose()

        asyncio.run(scenario())


class Sharded(Case):
    """On one server, which may hold shards, too. test_sharded_library.py has a cluster."""

    def reserve(self, generation, shards, prefix=""):
        keys = [f"{{users:{i}}}:{generation}" for i in range(shards)]
        for i, key in enumerate(keys):
            self.client.execute_command("BF.RESERVE", key, 0.001, 10_000, "SHARD", i, shards)
        fields = {"shards": shards, "generation": generation, "error": 0.001, "capacity": 10_000}
        return {f"{prefix}{name}": value for name, value in {**fields, **dict(enumerate(keys))}.items()}

    def setUp(self):
        super().setUp()
        self.fields = {"rule": "crc32", "state": "ready", "poll": 1, **self.reserve(1, 4)}
        self.client.hset("users", mapping=self.fields)
        self.filter = ShardedFilter(self.client, "users")

    def test_the_rule(self):
        page = (ROOT / "docs/reference/sharding.md").read_text()
        vectors = re.findall(r"^\| (?:\(empty\)|`(.*?)`|the bytes `(.*?)`) \| [0-9a-f]{8} \|(.*)\|$", page, re.MULTILINE)
        self.assertGreaterEqual(len(vectors), 9)
        for text, hex, row in vectors:
            item = bytes.fromhex(hex) if hex else text
            wanted = [int(shard) for shard in row.split("|")]
            self.assertEqual([shard_of(item, shards) for shards in (2, 3, 8, 16, 64, 128, 1000)], wanted, item)

    def test_the_mark_of_a_shard_is_the_first_item_that_belongs_to_it(self):
        for shards in (1, 3, 16):
            found = marks(shards)
            self.assertEqual([shard_of(mark, shards) for mark in found], list(range(shards)))
            numbers = [int(mark.removeprefix("filter: complete ")) for mark in found]
            for number in range(max(numbers)):
                self.assertGreaterEqual(number, numbers[shard_of(f"filter: complete {number}", shards)])

    def test_a_no_is_believed_of_a_marked_shard_only(self):
        items = [f"user:{i}" for i in range(1000)]
        self.filter.add(items)
        self.assertEqual(set(self.filter.has(["nobody", "no"])), {None})
        time.sleep(1.1)  # the shards are left alone for a second after a failure
        self.filter.mark()
        self.assertEqual(set(self.filter.has(items)), {True})
        self.assertEqual(self.filter.has(["nobody"]), [False])
        self.client.unlink(self.fields[str(shard_of("user:1", 4))])
        self.assertEqual(self.filter.has(["user:1"]), [None])
        with self.assertRaisesRegex(redis.ResponseError, "not found"):
            self.filter.add(["user:1"])
        self.assertNotIn(False, self.filter.has(items))

    def test_a_rebuild_is_followed(self):
        self.filter.add(["old"])
        self.filter.mark()
        after = self.reserve(2, 8)
        self.client.hset("users", mapping={f"next.{name}": value for name, value in after.items()})
        time.sleep(1.1)
        items = [f"user:{i}" for i in range(500)]
        self.filter.add(items)
        other = ShardedFilter(self.client, "users")
        other.has(["old"])
        self.client.hset("users", mapping=after)
        before = {f"next.{name}": value for name, value in self.fields.items() if name not in ("rule", "state", "poll")}
        self.client.hset("users", mapping=before)
        self.client.hdel("users", *[f"next.{i}" for i in range(4, 8)])
        self.filter.add(["during"])
        for i in range(4):
            self.client.set(f"{{users:{i}}}:1", "moved to 2")
        self.assertEqual(set(other.has([*items, "during"])), {True})
        time.sleep(1.1)
        other.add(["after"])
        self.assertEqual(self.filter.has(["after"]), [True])

    def test_next_fields_that_cannot_be_read_refuse_additions(self):
        self.filter.add(["a"])
        self.client.hset("users", "next.shards", 0)
        time.sleep(1.1)
        with self.assertRaisesRegex(ValueError, "next generation"):
            self.filter.add(["b"])
        self.assertEqual(self.filter.has(["a"]), [True])

    def test_nothing_raises_without_a_descriptor(self):
        missing = ShardedFilter(self.client, "missing")
        self.assertEqual((missing.has(["a"]), missing.failures), ([None], 1))
        with self.assertRaises(ValueError):
            missing.add(["a"])

    def test_asyncio(self):
        async def scenario():
            client = redis.asyncio.Redis.from_url(URL)
            users = AsyncShardedFilter(client, "users")
            await users.add(["a"])
            await users.mark()
            self.assertEqual(await users.has(["a", "nobody"]), [True, False])
            await client.aclose()

        asyncio.run(scenario())


class Package(unittest.TestCase):
    def test_the_wheel_has_the_licences(self):
        """As hatchling finds them: beside pyproject.toml."""
        for name in ("LICENSE-MIT", "LICENSE-APACHE"):
            self.assertEqual((ROOT / "clients/python" / name).read_bytes(), (ROOT / name).read_bytes())


class Lookups(Case):
    def test_a_lookup_is_one_command(self):
        with Guard(self.client, "users", capacity=1000, commit_within=0) as one:
            one.build(["a"])
            one.lookup("a", str)
            before = self.client.info("commandstats")
            for _ in range(100):
                one.lookup("a", str)
            after = self.client.info("commandstats")
        calls = lambda stats, name: stats[f"cmdstat_{name}"]["calls"]
        self.assertEqual(calls(after, "evalsha") - calls(before, "evalsha"), 100)
        self.assertLess(calls(after, "eval") - calls(before, "eval"), 100)

    def test_a_lookup_costs_at_most_a_tenth_more_than_a_query(self):
        """In time of processors, of the client and the server together; 0.99 on 2026-11-24."""

        def cost(do):
            def spent():
                server = self.client.info("cpu")
                return time.process_time() + server["used_cpu_sys_main_thread"] + server["used_cpu_user_main_thread"]

            begin = spent()
            for i in range(1000):
                do(f"absent:{i}")
            return spent() - begin

        with Guard(self.client, "users", capacity=1000, commit_within=0) as one:
            one.build(["a"])
            query = self.client.bf().mexists
            ratios = [cost(lambda key: one.lookup(key, str)) / cost(lambda key: query(one.filter, key)) for _ in range(9)]
        self.assertLess(statistics.median(ratios), 1.1, ratios)


if __name__ == "__main__":
    unittest.main()
