"""redis-cli (with the hiredis of Debian): its output on a terminal, and in a script.

The program is the one on the PATH, or in REDIS_CLI.
"""

import itertools
import json
import os
import subprocess
import unittest

PROGRAM = os.environ.get("REDIS_CLI", "redis-cli")
KEYS = (f"redis-cli:{number}" for number in itertools.count())


def cli(*words, options=(), standard_input=None):
    """The standard output of one call, as bytes; raises if the call fails."""
    command = [PROGRAM, "-h", "127.0.0.1", "-p", os.environ["REDIS_PORT"], *options, *map(str, words)]
    return subprocess.run(command, input=standard_input, stdout=subprocess.PIPE, check=True).stdout


class Cli(unittest.TestCase):
    def setUp(self):
        self.key = next(KEYS)

    def test_what_a_person_sees_in_each_protocol(self):
        for option, yes, no in ("-2", "(integer) 1", "(integer) 0"), ("-3", "(true)", "(false)"):
            key = next(KEYS)
            for line, shown in (
                (f"BF.RESERVE {key} 0.000001 3 NONSCALING", "OK"),
                (f"BF.ADD {key} a", yes),
                (f"BF.ADD {key} a", no),
                (f"BF.MADD {key} a b", f"1) {no}\n2) {yes}"),
                (f"BF.INSERT {key} NOCREATE ITEMS c d e", f"1) {yes}\n2) (error) ERR non scaling filter is full"),
                (f"BF.EXISTS {key} a", yes),
                (f"BF.MEXISTS {key} a z", f"1) {yes}\n2) {no}"),
                (f"BF.CARD {key}", "(integer) 3"),
                (f"BF.CARD {key} x", "(error) ERR wrong number of arguments for 'bf.card' command"),
                (f"TYPE {key}", "MBbloom--"),
            ):
                with self.subTest(option=option, line=line):
                    self.assertEqual(cli(*line.split(), options=["--no-raw", option]).decode(), f"{shown}\n")

    def test_info_as_a_person_sees_it(self):
        cli("BF.RESERVE", self.key, "0.01", "100", "NONSCALING")
        size = json.loads(cli("BF.INFO", self.key, "SIZE", options=["-2", "--json"]))[0]
        names = "Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"
        values = "(integer) 100", f"(integer) {size}", "(integer) 1", "(integer) 0", "(nil)"
        shown = cli("BF.INFO", self.key, options=["--no-raw", "-3"]).decode()
        self.assertEqual(shown, "".join(f"{i}# {n} => {v}\n" for i, n, v in zip(range(1, 6), names, values)))
        shown = cli("BF.INFO", self.key, options=["--no-raw", "-2"]).decode().splitlines()
        self.assertEqual([line[4:] for line in shown], [part for pair in zip(names, values) for part in pair])

    def test_what_a_script_gets(self):
        self.assertEqual(cli("BF.MADD", self.key, "a", "b", "a"), b"1\n1\n0\n")
        self.assertEqual(cli("BF.MADD", self.key, "a", "c", options=["-3", "--json"]), b"[false,true]\n")
        info = json.loads(cli("BF.INFO", self.key, options=["-3", "--json"]))
        self.assertEqual((info["Capacity"], info["Number of items inserted"], info["Expansion rate"]), (100, 3, 2))
        self.assertTrue(cli("BF.DEBUG", self.key).startswith(b"size:3\nbytes:"))

    def test_the_last_argument_comes_from_standard_input(self):
        item = bytes(range(256))
        self.assertEqual(cli("BF.ADD", self.key, options=["-x"], standard_input=item), b"1\n")
        self.assertEqual(cli("BF.EXISTS", self.key, options=["-x"], standard_input=item), b"1\n")

    def test_a_mass_of_items_through_the_pipe_mode(self):
        lines = "".join(f"BF.ADD {self.key} item-{number}\r\n" for number in range(10_000))
        self.assertIn(b"errors: 0, replies: 10000", cli(options=["--pipe"], standard_input=lines.encode()))
        self.assertEqual(cli("BF.EXISTS", self.key, "item-9999"), b"1\n")

    def test_a_chunk_goes_through_a_shell(self):
        cli("BF.MADD", self.key, *range(200))
        copy, iterator, chunks = next(KEYS), "0", 0
        while True:
            number, data = cli("BF.SCANDUMP", self.key, iterator).split(b"\n", 1)
            iterator = number.decode()
            if iterator == "0":
                break
            # redis-cli adds a line feed to the reply.
            loaded = cli("BF.LOADCHUNK", copy, iterator, options=["-x"], standard_input=data[:-1])
            self.assertEqual(loaded, b"OK\n")
            chunks += 1
        self.assertEqual(data, b"\n")
        self.assertGreater(chunks, 1)
        self.assertEqual(cli("BF.MEXISTS", copy, *range(200)), b"1\n" * 200)

    def test_the_server_describes_the_commands(self):
        docs = json.loads(cli("COMMAND", "DOCS", "BF.ADD", options=["-3", "--json"]))["bf.add"]
        self.assertEqual([argument["name"] for argument in docs["arguments"]], ["key", "item"])
        self.assertEqual(cli("COMMAND", "GETKEYS", "BF.MEXISTS", self.key, "a"), f"{self.key}\n".encode())


if __name__ == "__main__":
    unittest.main()
