"""redis-py: every method of its bf() API, blocking and asyncio, with both of its parsers.

The protocols are RESP2, RESP3 and the default of the client. Each combination is a test class, made
at the end of the file. `make test-clients` starts the server and puts its port into REDIS_PORT.
"""

import asyncio
import itertools
import os
import unittest

import redis
import redis.asyncio
from redis._parsers import _HiredisParser, _RESP2Parser
from redis.exceptions import ResponseError

ADDRESS = {"host": "127.0.0.1", "port": int(os.environ["REDIS_PORT"])}
KEYS = (f"redis-py:{number}" for number in itertools.count())


class Blocking:
    """Makes the methods of an asyncio object blocking, so that the same tests run with both."""

    def __init__(self, loop, inner):
        self.loop, self.inner = loop, inner

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        return lambda *args, **options: self.loop.run_until_complete(method(*args, **options))


class Methods:
    """The tests; a subclass defines `connect`, which returns the client."""

    protocol = None  # None: the default of the client

    def setUp(self):
        self.client = self.connect()
        self.bf = self.client_bf()
        self.key = next(KEYS)

    def client_bf(self):
        return self.client.bf()

    def answers(self, *bits):
        """Integers in RESP2, booleans in RESP3."""
        return [int(bit) if self.protocol == 2 else bool(bit) for bit in bits]

    def answer(self, bit):
        return self.answers(bit)[0]

    def assertSame(self, got, expected):
        """Checks values and their types: True differs from 1."""
        self.assertEqual(repr(got), repr(expected))

    def assertRefuses(self, text, method, *args, **options):
        with self.assertRaises(ResponseError) as raised:
            method(*args, **options)
        self.assertEqual(str(raised.exception), text)

    def info(self, key):
        """The five numbers; redis-py returns an object or a dictionary."""
        info = self.bf.info(key)
        if not isinstance(info, dict):
            return info.capacity, info.size, info.filterNum, info.insertedNum, info.expansionRate
        names = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"]
        info = {name.decode() if isinstance(name, bytes) else name: value for name, value in info.items()}
        self.assertEqual(list(info), names)
        return tuple(info[name] for name in names)

    def test_create_makes_a_filter_as_asked(self):
        self.assertIs(self.bf.create(self.key, 0.001, 1000, expansion=4), True)
        capacity, size, filters, items, expansion = self.info(self.key)
        self.assertSame((capacity, filters, items, expansion), (1000, 1, 0, 4))
        self.assertIs(type(size), int)
        self.assertGreater(size, 1000)
        self.assertRefuses("item exists", self.bf.create, self.key, 0.001, 1000)

    def test_reserve_is_create(self):
        self.assertIs(self.bf.reserve(self.key, 1e-07, 10), True)
        self.assertEqual(self.info(self.key)[4], 2)

    def test_a_filter_that_does_not_scale_has_no_expansion(self):
        self.assertIs(self.bf.create(self.key, 0.01, 10, noScale=True), True)
        self.assertIs(self.info(self.key)[4], None)

    def test_create_refuses_to_scale_and_not_to_scale(self):
        refused = "Nonscaling filters cannot expand"
        self.assertRefuses(refused, self.bf.create, self.key, 0.01, 10, expansion=2, noScale=True)

    def test_add_says_what_is_new(self):
        self.assertSame(self.bf.add(self.key, "a"), self.answer(1))
        self.assertSame(self.bf.add(self.key, "a"), self.answer(0))

    def test_madd_says_what_is_new(self):
        self.assertSame(self.bf.madd(self.key, "a", "b", "a"), self.answers(1, 1, 0))

    def test_insert_takes_every_option(self):
        new = self.bf.insert(self.key, ["a", "b"], capacity=500, error=0.0001, expansion=3)
        self.assertSame(new, self.answers(1, 1))
        capacity, _, _, items, expansion = self.info(self.key)
        self.assertEqual((capacity, items, expansion), (500, 2, 3))
        self.assertSame(self.bf.insert(self.key, ["b", "c"], noCreate=True), self.answers(0, 1))

    def test_insert_makes_a_filter_that_does_not_scale(self):
        self.assertSame(self.bf.insert(self.key, ["a"], capacity=5, noScale=True), self.answers(1))
        self.assertIs(self.info(self.key)[4], None)
        other = self.key + ":2"
        self.assertSame(self.bf.insert(other, ["a"], capacity=5, expansion=2, noScale=True), self.answers(1))
        self.assertIs(self.info(other)[4], None)

    def test_insert_without_creating_finds_nothing(self):
        self.assertRefuses("not found", self.bf.insert, self.key, ["a"], noCreate=True)

    def test_exists_and_mexists_find_what_was_added(self):
        self.bf.madd(self.key, "a", "b")
        self.assertSame(self.bf.exists(self.key, "a"), self.answer(1))
        self.assertSame(self.bf.exists(self.key, "z"), self.answer(0))
        self.assertSame(self.bf.mexists(self.key, "a", "z", "b"), self.answers(1, 0, 1))

    def test_a_missing_filter_has_nothing(self):
        self.assertSame(self.bf.exists(self.key, "a"), self.answer(0))
        self.assertSame(self.bf.mexists(self.key, "a", "b"), self.answers(0, 0))
        self.assertSame(self.bf.card(self.key), 0)
        self.assertRefuses("not found", self.bf.info, self.key)
        self.assertRefuses("not found", self.bf.scandump, self.key, 0)

    def test_card_counts(self):
        self.bf.madd(self.key, "a", "b", "a")
        self.assertSame(self.bf.card(self.key), 2)

    def test_an_item_is_any_bytes(self):
        items = [b"\r\n\x00\xff", "grüße", "", 42, 1.5, "x" * 100_000]
        self.assertSame(self.bf.madd(self.key, *items), self.answers(*[1] * len(items)))
        self.assertSame(self.bf.mexists(self.key, *items), self.answers(*[1] * len(items)))

    def test_a_full_filter_ends_the_answers_with_the_error(self):
        self.bf.create(self.key, 1e-09, 2, noScale=True)
        *new, error = self.bf.madd(self.key, "a", "b", "c", "d")
        self.assertSame(new, self.answers(1, 1))
        self.assertIsInstance(error, ResponseError)
        self.assertEqual(str(error), "non scaling filter is full")
        self.assertRefuses("non scaling filter is full", self.bf.add, self.key, "c")
        self.assertSame(self.bf.add(self.key, "a"), self.answer(0))

    def test_a_filter_grows(self):
        self.bf.create(self.key, 0.01, 10)
        items = [f"item-{number}" for number in range(100)]
        self.bf.madd(self.key, *items)
        self.assertSame(self.bf.mexists(self.key, *items), self.answers(*[1] * 100))
        capacity, _, filters, counted, _ = self.info(self.key)
        self.assertGreater(filters, 1)
        self.assertGreaterEqual(capacity, counted)

    def test_scandump_and_loadchunk_copy_a_filter(self):
        items = [f"item-{number}" for number in range(1000)]
        self.bf.madd(self.key, *items)
        copy, chunks = next(KEYS), 0
        iterator, data = self.bf.scandump(self.key, 0)
        while iterator:
            self.assertSame([type(iterator), type(data)], [int, bytes])
            self.assertIn(self.bf.loadchunk(copy, iterator, data), (b"OK", "OK"))
            iterator, data = self.bf.scandump(self.key, iterator)
            chunks += 1
        self.assertSame([iterator, data], [0, b""])
        self.assertGreater(chunks, 1)
        self.assertSame(self.bf.mexists(copy, *items), self.answers(*[1] * 1000))
        self.assertSame(self.info(copy), self.info(self.key))

    def test_debug_which_has_no_method_of_its_own(self):
        self.bf.madd(self.key, "a", "b")
        lines = self.client.execute_command("BF.DEBUG", self.key)
        first, layer = (line.decode() if isinstance(line, bytes) else line for line in lines)
        self.assertEqual(first, "size:2")
        self.assertIn("capacity:100 size:2", layer)

    def test_a_key_of_another_type_is_refused(self):
        self.client.set(self.key, "text")
        for method, *args in (
            (self.bf.add, "a"),
            (self.bf.madd, "a"),
            (self.bf.insert, ["a"]),
            (self.bf.exists, "a"),
            (self.bf.mexists, "a"),
            (self.bf.card,),
            (self.bf.info,),
            (self.bf.create, 0.01, 10),
            (self.bf.scandump, 0),
            (self.bf.loadchunk, 1, b""),
        ):
            with self.subTest(method.__name__), self.assertRaisesRegex(ResponseError, "^WRONGTYPE "):
                method(self.key, *args)

    def test_the_module_is_listed_as_bf(self):
        modules = self.client.module_list()
        names = [module.get(b"name", module.get("name")) for module in modules]
        self.assertTrue({b"bf", "bf"} & set(names), modules)


class Sync(Methods):
    parser = _HiredisParser
    options = {}

    def connect(self):
        options = ADDRESS | self.options
        if self.protocol is not None:
            options["protocol"] = self.protocol
        pool = redis.ConnectionPool(parser_class=self.parser, **options)
        self.addCleanup(pool.disconnect)
        return redis.Redis(connection_pool=pool)

    def test_a_pipeline_stays_in_step_behind_an_error_inside_an_array(self):
        self.bf.create(self.key, 1e-09, 1, noScale=True)
        pipeline = self.client.pipeline(transaction=False)
        pipeline.execute_command("BF.MADD", self.key, "a", "b", "c")
        pipeline.execute_command("BF.EXISTS", self.key, "a")
        pipeline.echo("in step")
        added, exists, echo = pipeline.execute()
        self.assertSame(added[0], self.answer(1))
        self.assertEqual(len(added), 2)
        self.assertSame(exists, self.answer(1))
        self.assertIn(echo, (b"in step", "in step"))


class Asyncio(Methods):
    def connect(self):
        self.loop = asyncio.new_event_loop()
        options = ADDRESS if self.protocol is None else ADDRESS | {"protocol": self.protocol}
        self.inner = redis.asyncio.Redis(**options)
        self.addCleanup(self.loop.close)
        self.addCleanup(lambda: self.loop.run_until_complete(self.inner.aclose()))
        return Blocking(self.loop, self.inner)

    def client_bf(self):
        return Blocking(self.loop, self.inner.bf())


for name, base, more in (
    ("Hiredis", Sync, {"parser": _HiredisParser}),
    ("Pure", Sync, {"parser": _RESP2Parser}),  # with protocol 3 redis-py chooses its RESP3 parser
    ("Decoding", Sync, {"options": {"decode_responses": True}}),
    ("NewShapes", Sync, {"options": {"legacy_responses": False}}),
    ("Asyncio", Asyncio, {}),
):
    for protocol in (None, 2, 3):
        case = f"{name}{protocol or 'Default'}"
        globals()[case] = type(case, (base, unittest.TestCase), {"protocol": protocol} | more)

if __name__ == "__main__":
    unittest.main()
