"""hiredis, the C client: the values that its parser returns for the reply of each command.

The libhiredis of Debian 12 is too old for RESP3, so the tests use the Python package hiredis, which
contains its own. They send the bytes of its `pack_command`, and compare values and types that its
`Reader` returns.
"""

import itertools
import os
import socket
import unittest

import hiredis

ADDRESS = "127.0.0.1", int(os.environ["REDIS_PORT"])
KEYS = (f"hiredis:{number}" for number in itertools.count())
OK = b"OK"
FIELDS = {
    "CAPACITY": b"Capacity",
    "SIZE": b"Size",
    "FILTERS": b"Number of filters",
    "ITEMS": b"Number of items inserted",
    "EXPANSION": b"Expansion rate",
}


class Commands:
    """The tests; a subclass sets the protocol."""

    def setUp(self):
        self.socket = socket.create_connection(ADDRESS, timeout=60)
        self.addCleanup(self.socket.close)
        self.reader = hiredis.Reader(notEnoughData=...)
        self.send("HELLO", self.protocol)
        self.key = next(KEYS)

    def send(self, *words):
        """Sends a command and returns its reply; fails if more bytes follow."""
        self.socket.sendall(hiredis.pack_command(words))
        while (reply := self.reader.gets()) is ...:
            received = self.socket.recv(65536)
            self.assertTrue(received, "the server closed the connection")
            self.reader.feed(received)
        self.assertIs(self.reader.gets(), ...)
        return reply

    def check(self, expected, *words):
        """Checks a reply and its types: True differs from 1."""
        self.assertEqual(repr(self.send(*words)), repr(expected))

    def answers(self, *bits):
        """Integers in RESP2, booleans in RESP3."""
        return [int(bit) if self.protocol == 2 else bool(bit) for bit in bits]

    def answer(self, bit):
        return self.answers(bit)[0]

    def test_adding_and_asking(self):
        self.check(OK, "BF.RESERVE", self.key, "0.001", "100", "EXPANSION", "4")
        self.check(self.answer(1), "BF.ADD", self.key, "a")
        self.check(self.answer(0), "BF.ADD", self.key, "a")
        self.check(self.answers(0, 1), "BF.MADD", self.key, "a", "b")
        self.check(self.answers(1, 0), "BF.INSERT", self.key, "NOCREATE", "ITEMS", "c", "a")
        self.check(self.answer(1), "BF.EXISTS", self.key, "c")
        self.check(self.answers(1, 0), "BF.MEXISTS", self.key, "b", b"\r\n\x00")
        self.check(3, "BF.CARD", self.key)

    def test_info_is_a_flat_array_or_a_map(self):
        for options, expansion in (["EXPANSION", "4"], 4), (["NONSCALING"], None):
            self.key = next(KEYS)
            self.check(OK, "BF.RESERVE", self.key, "0.001", "100", *options)
            info = self.send("BF.INFO", self.key)
            if self.protocol == 2:
                self.assertIs(type(info), list)
                info = dict(zip(info[::2], info[1::2], strict=True))
            self.assertEqual(list(info), list(FIELDS.values()))
            size = info[b"Size"]
            self.assertEqual(list(info.values()), [100, size, 1, 0, expansion])
            for field, name in FIELDS.items():
                self.check([info[name]] if self.protocol == 2 else {name: info[name]}, "BF.INFO", self.key, field)

    def test_debug_is_lines(self):
        self.check(self.answers(1, 1), "BF.MADD", self.key, "a", "b")
        first, layer = self.send("BF.DEBUG", self.key)
        self.assertEqual(first, b"size:2")
        self.assertRegex(layer, rb"^bytes:\d+ bits:\d+ hashes:1 hashwidth:64 capacity:100 size:2 ratio:0\.01 pages:1 slots:2")

    def test_a_dump_ends_with_zero_and_an_empty_string(self):
        self.send("BF.MADD", self.key, *range(500))
        copy, iterator, chunks = next(KEYS), 0, 0
        while True:
            reply = self.send("BF.SCANDUMP", self.key, iterator)
            self.assertEqual([type(part) for part in reply], [int, bytes])
            iterator, data = reply
            if iterator == 0:
                break
            chunks += 1
            self.check(OK, "BF.LOADCHUNK", copy, iterator, data)
        self.assertEqual(data, b"")
        self.assertGreater(chunks, 1)
        self.check(self.answers(*[1] * 500), "BF.MEXISTS", copy, *range(500))

    def test_an_error_is_the_last_element(self):
        self.check(OK, "BF.RESERVE", self.key, "1e-9", "1", "NONSCALING")
        full = hiredis.ReplyError("ERR non scaling filter is full")
        self.check([self.answer(1), full], "BF.MADD", self.key, "a", "b", "c")
        self.check([full], "BF.INSERT", self.key, "ITEMS", "b", "c")
        self.check(full, "BF.ADD", self.key, "b")

    def test_a_large_reply_in_many_reads(self):
        items = range(100_000)
        self.check(OK, "BF.RESERVE", self.key, "1e-9", "100000")
        self.check(self.answers(*[1] * len(items)), "BF.MADD", self.key, *items)

    def test_errors_are_errors(self):
        for words, text in (
            (("BF.INFO", self.key), "ERR not found"),
            (("BF.SCANDUMP", self.key, 0), "ERR not found"),
            (("BF.LOADCHUNK", self.key, 1, "junk"), "ERR received bad data"),
            (("BF.RESERVE", self.key, "2", "100"), "ERR error rate must be in the range (0.000000, 1.000000)"),
            (("BF.ADD", self.key), "ERR wrong number of arguments for 'bf.add' command"),
        ):
            with self.subTest(words):
                self.check(hiredis.ReplyError(text), *words)


class Resp2(Commands, unittest.TestCase):
    protocol = 2


class Resp3(Commands, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
