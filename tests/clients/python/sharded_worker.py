"""Runs the guard and the crawler of sharded.py for test_sharded.py, which writes commands and reads a line for each.

    python sharded_worker.py URL

Commands and what is printed:

    use NAME [idle]    `ok`; from now on the filter is that one, with nothing known of it, and the database has 2,000
                       rows; with `idle` a round does nothing, and prints `0 0`, as before the first `use`
    shard N ITEM ...   the shard of each item among N
    markers N          the items that mark N shards as complete, separated by `,`
    lookup KEY ...     for each key `row` or `none`, with a `?` behind it if the database was asked
    insert KEY         `ok`
    claim URL ...      `new `, the URLs to fetch, ` later `, those to offer again; each list separated by `,`
    fetched URL        `ok`
    keys               the keys of all rows, separated by spaces
    failures           how often the filter gave no answer
    round              `ASKED FAILURES`, after an insert, which may fail, and lookups of 5 rows that exist and 5 that
                       do not: absent rows for which the database was asked, failures so far; or `hidden KEY ...` if
                       the guard did not find a row

A line that begins with `raised` is an exception. The log goes to standard error.
"""

import logging
import sys

import sharded


class Database(dict):
    asked = 0

    def get(self, key):
        self.asked += 1
        return super().get(key)

    insert = dict.__setitem__


class Worker:
    def __init__(self, url):
        self.url = url
        self.idle, self.rounds = True, 0
        self.clients = [sharded.connect(url, timeout) for timeout in (0.5, 1.0, 1.0)]

    def use(self, name, idle=None):
        reader, writer, claims = self.clients
        self.rows = Database((f"user:{i}", f"name {i}") for i in range(2000))
        self.filter = sharded.Sharded(name, reader, writer)
        self.idle = idle
        self.guard = sharded.Guard(self.filter, self.rows)
        self.crawler = sharded.Crawler(self.filter, claims)

    def do(self, command, *words):
        match command:
            case "use":
                self.use(*words)
            case "shard":
                return " ".join(str(sharded.shard_of(item, int(words[0]))) for item in words[1:])
            case "markers":
                return ",".join(sharded.markers(int(words[0])))
            case "lookup":
                return " ".join(map(self.lookup, words))
            case "insert":
                self.guard.insert(words[0], "inserted")
            case "claim":
                new, later = self.crawler.claim(words)
                return f"new {','.join(new)} later {','.join(later)}"
            case "fetched":
                self.crawler.fetched(words[0])
            case "keys":
                return " ".join(self.rows)
            case "round":
                return "0 0" if self.idle else self.round()
        return "ok"

    def lookup(self, key):
        asked = self.rows.asked
        row = self.guard.lookup(key)
        return ("none" if row is None else "row") + "?" * (self.rows.asked - asked)

    def round(self):
        self.rounds += 1
        try:
            self.guard.insert(f"python:{self.rounds}", "inserted")
        except Exception as error:
            logging.info("not inserted: %s: %s", type(error).__name__, error)
        keys = list(self.rows)
        present = [keys[-1], *(keys[(self.rounds * 4 + i) % len(keys)] for i in range(4))]
        hidden = [key for key in present if self.guard.lookup(key) is None]
        asked = self.rows.asked
        for i in range(5):
            assert self.guard.lookup(f"absent:{self.rounds}:{i}") is None
        return f"hidden {hidden}" if hidden else f"{self.rows.asked - asked} {self.filter.failures}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        try:
            print(worker.do(*line.split()), flush=True)
        except Exception as error:
            print(f"raised {type(error).__name__}: {error}", flush=True)
