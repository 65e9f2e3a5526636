"""The programs of docs/guide/seen.md, with windows that end while the test waits, and without their server.

test_documents.py runs them as they are on the page.
"""

import os
import re
import threading
import time
import unittest

import redis

from server import Server, until
from test_documents import EXAMPLE, ROOT, local

PORT = int(os.environ["REDIS_PORT"])
PAGE = (ROOT / "docs/guide/seen.md").read_text()
SHORT = 400  # milliseconds
AFTER = 0.6  # seconds, longer than a short window and one of its 4 generations


def programs():
    """Name of the key, and the program without its example."""
    found = {}
    for code, _ in (example.groups() for example in EXAMPLE.finditer(PAGE)):
        (key,) = re.findall(r'^KEY.* = "(\w+)"', code, re.MULTILINE)
        functions, example = code.split("\nr.unlink(KEY)")
        assert example
        found[key] = functions
    return found


def names(key, port=PORT, short=False, **words):
    """The names of a program. `short` makes its window short, `words` replaces other words of it."""
    code = programs()[key]
    if short:
        code, count = re.subn(r'"EX", (WEEK|DAY)', f'"PX", {SHORT}', code)
        assert count == 1
    for old, new in words.items():
        assert old in code
        code = code.replace(old, new)
    defined = {"__name__": "example"}
    exec(local(code).replace(f"port={PORT}", f"port={port}"), defined)
    return defined


class Windows(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(port=PORT)
        self.addCleanup(self.redis.close)
        self.redis.flushall()

    def test_there_are_five_programs(self):
        self.assertEqual(list(programs()), ["visited", "active", "requests", "shown", "events"])

    def test_a_page_is_due_again_although_the_crawler_meets_it_all_the_time(self):
        due = names("visited", short=True)["due"]
        self.assertEqual(due(["a", "b", "a"]), ["a", "b"])
        self.assertEqual(due([]), [])
        until(lambda: due(["a"]) == ["a"], "the page is due")

    def test_each_page_goes_to_one_of_many_crawlers(self):
        urls = [f"url-{number}" for number in range(2000)]
        taken = []

        def crawl(order):
            due = names("visited")["due"]
            for start in range(0, len(order), 50):
                taken.extend(due(order[start : start + 50]))

        crawlers = [threading.Thread(target=crawl, args=(order,)) for order in (urls, urls[::-1], urls[1000:] + urls[:1000])]
        for crawler in crawlers:
            crawler.start()
        for crawler in crawlers:
            crawler.join()
        self.assertEqual(len(taken), len(set(taken)))
        # A URL is found by accident with a rate of 0.1 %: 2 of 2,000, and more than 20 once in 10^14 runs.
        self.assertGreaterEqual(len(taken), 1980)

    def test_users_are_active_until_the_window_has_passed(self):
        program = names("active", short=True)
        self.assertTrue(program["seen"](["alice"]))
        time.sleep(AFTER)
        self.assertEqual(program["active"](["alice"]), [False])
        self.assertTrue(program["seen"](["alice"]))
        long = names("active", **{'"active", 24': '"longer", 24'})
        long["seen"](["alice"])
        time.sleep(AFTER)
        self.assertEqual(long["active"](["alice", "bob"]), [True, False])

    def test_a_request_is_new_again_when_the_window_has_passed(self):
        program = names("requests", short=True)
        self.assertTrue(program["is_new"]("a"))
        time.sleep(AFTER)
        self.assertTrue(program["is_new"]("a"))

    def test_a_result_is_recorded_once_whatever_the_filter_says(self):
        handle = names("requests")["handle"]
        results = {}
        self.assertEqual(handle("a", results, lambda: 1), 1)
        self.assertEqual(handle("a", results, self.fail), 1)
        self.redis.unlink("requests")  # forgotten: the record decides
        self.assertEqual(handle("a", results, lambda: 2), 1)
        self.redis.execute_command("BF.MADD", "requests", "b")  # found by accident, or its worker has died
        self.assertEqual(handle("b", results, lambda: 3), 3)

    def test_an_ad_is_shown_three_times_in_a_window(self):
        may_show = names("shown", short=True)["may_show"]
        self.assertTrue(may_show("alice", "shoes"))
        time.sleep(AFTER)
        # If all of this takes less than the window, it is three times; it never is less.
        self.assertGreaterEqual(sum(may_show("alice", "shoes") for _ in range(10)), 3)
        may_show = names("shown")["may_show"]
        self.redis.flushall()
        self.assertEqual([may_show("bob", "hats") for _ in range(5)], [True] * 3 + [False] * 2)

    def test_several_programs_show_an_ad_three_times_together(self):
        shown = []

        def show():
            may_show = names("shown")["may_show"]
            shown.extend(may_show("alice", "shoes") for _ in range(50))

        programs = [threading.Thread(target=show) for _ in range(4)]
        for program in programs:
            program.start()
        for program in programs:
            program.join()
        self.assertEqual(sum(shown), 3)

    def test_the_last_events_are_known_and_older_ones_are_not(self):
        done = []
        handle = names("events", **{"1_000_000": "1_000"})["handle"]
        events = [f"event-{number}" for number in range(5000)]
        for start in range(0, len(events), 100):
            handle(events[start : start + 100], done.append)
        self.assertEqual(self.redis.execute_command("BF.MEXISTS", "events", *events[-1000:]), [1] * 1000)
        # The filter holds 1,250 at most, and few more were found by accident: 1e-4 of 3,700 is 0.4, and more than 8 come
        # once in 10^9 runs.
        self.assertLessEqual(sum(self.redis.execute_command("BF.MEXISTS", "events", *events[:3700])), 8)
        self.assertGreaterEqual(len(done), 4990)
        handle([], self.fail)

    def test_an_event_whose_work_fails_is_not_marked(self):
        handle = names("events")["handle"]
        with self.assertRaises(ZeroDivisionError):
            handle(["a", "b"], lambda event: event == "b" and 1 / 0)
        done = []
        handle(["a", "b"], done.append)
        self.assertEqual(done, ["a", "b"])

    def calls(self, port=PORT):
        """The functions that add, and what each answers without a server or without memory; an exception if it raises."""
        program = {key: names(key, port) for key in programs()}
        return {
            "visited": (lambda: program["visited"]["due"](["a"]), redis.RedisError),
            "active": (lambda: program["active"]["seen"](["a"]), False),
            "requests": (lambda: program["requests"]["is_new"]("a"), None),
            "shown": (lambda: program["shown"]["may_show"]("a", "b"), False),
            "events": (lambda: program["events"]["handle"](["a"], lambda event: None), redis.RedisError),
        }

    def check_failures(self, calls):
        for key, (call, expected) in calls.items():
            with self.subTest(key):
                if expected is redis.RedisError:
                    self.assertRaises(redis.RedisError, call)
                else:
                    self.assertIs(call(), expected)

    def test_each_program_makes_a_lost_filter_again_with_its_window(self):
        (setting,) = self.redis.config_get("bf?missing-key-error")
        self.addCleanup(self.redis.config_set, setting, "no")
        for key, (call, _) in self.calls().items():
            with self.subTest(key):
                for value in ("no", "yes"):
                    self.redis.config_set(setting, value)
                    call()
                    info = self.redis.execute_command("BF.INFO", key, "WINDOW")
                    self.assertIn("Milliseconds", str(info))  # a plain filter has none
                    self.redis.unlink(key)

    def test_the_page_says_how_much_memory_each_filter_takes(self):
        said = re.findall(r"\| (\d\.\d) MB \|", PAGE)
        self.assertEqual(len(said), len(programs()))
        for (key, (call, _)), megabytes in zip(self.calls().items(), said):
            with self.subTest(key):
                call()
                items = 3_750_000 if key == "shown" else 1_250_000  # of a window, and of a generation more
                for start in range(0, items, 10_000):
                    self.redis.execute_command("BF.MADD", key, *range(start, start + 10_000))
                info = self.redis.execute_command("BF.INFO", key)
                size = info["Size"] if "Size" in info else info[b"Size"]
                self.assertLessEqual(size / 1e6, float(megabytes) + 0.05)
                self.assertGreater(size / 1e6, 0.8 * float(megabytes))

    def test_each_program_says_that_there_is_no_memory(self):
        calls = self.calls()
        (setting,) = self.redis.config_get("bf?max-filter-bytes")
        (before,) = self.redis.config_get(setting).values()
        self.redis.config_set(setting, 1000)
        try:
            self.check_failures(calls)
        finally:
            self.redis.config_set(setting, before)

    def test_what_each_program_answers_when_the_server_is_away(self):
        server = Server()
        self.addCleanup(server.close)
        calls = self.calls(server.port)
        active = names("active", server.port)["active"]
        requests = names("requests", server.port)
        results = {}
        for call, _ in calls.values():
            call()
        self.assertEqual(active(["a", "z"]), [True, False])
        server.kill()
        self.check_failures(calls)
        self.assertEqual(active(["a", "z"]), [None, None])
        self.assertFalse(requests["accept"]("nonce"))
        self.assertEqual(requests["handle"]("k", results, lambda: 1), 1)
        self.assertEqual(requests["handle"]("k", results, self.fail), 1)


if __name__ == "__main__":
    unittest.main()
