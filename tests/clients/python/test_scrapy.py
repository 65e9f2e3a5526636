"""The dupefilter of clients/python, in Scrapy's own engine, against a local web server.

Each crawl is a process of its own, because Scrapy's event loop cannot be started twice.
"""

import collections
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unittest

import redis
import scrapy
import scrapy.http
from scrapy.utils.test import get_crawler

from redis_bloom.scrapy import DupeFilter

PAGES = {
    "/": ["/a", "/b", "/a", "/moved"],
    "/a": ["/", "/b", "/c"],
    "/b": ["/c", "/a", "/flaky"],
    "/c": [],
    "/flaky": [],
    "/target": ["/c"],
}
CRAWL = """
import json, sys, scrapy
from scrapy.crawler import CrawlerProcess

class Spider(scrapy.Spider):
    name = "spider"
    start_urls = [sys.argv[1]]

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)

process = CrawlerProcess({
    "DUPEFILTER_CLASS": "redis_bloom.scrapy.DupeFilter", "REDIS_URL": sys.argv[2], "BLOOM_KEY": "crawled",
    "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False, "DOWNLOAD_DELAY": 0,
})
crawler = process.create_crawler(Spider)
process.crawl(crawler)
process.start()
print(json.dumps([crawler.stats.get_value(name, 0) for name in ("bloom/failures", "dupefilter/filtered")]))
"""


class Site(http.server.BaseHTTPRequestHandler):
    asked = collections.Counter()
    flaky = True

    def do_GET(self):
        self.asked[self.path] += 1
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/target")
        elif self.path == "/flaky" and Site.flaky:
            self.send_response(503)
        else:
            self.send_response(200 if self.path in PAGES else 404)
        body = "".join(f'<a href="{link}">x</a>' for link in PAGES.get(self.path, [])).encode()
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Scrapy(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(port=int(os.environ["REDIS_PORT"]))
        self.addCleanup(self.redis.close)
        self.redis.flushall()
        Site.flaky = True
        self.site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        self.addCleanup(self.site.server_close)
        self.addCleanup(self.site.shutdown)
        threading.Thread(target=self.site.serve_forever).start()

    def crawl(self, url=os.environ["REDIS_URL"]):
        """What the web server was asked for, and the failures and requests that the dupefilter counted."""
        Site.asked.clear()
        start = f"http://127.0.0.1:{self.site.server_port}/"
        run = subprocess.run(
            [sys.executable, "-c", CRAWL, start, url],
            cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True,
        )
        return dict(Site.asked), *json.loads(run.stdout)

    def test_each_page_is_fetched_once(self):
        every = dict.fromkeys([*PAGES, "/moved"], 1)
        # The pages have 11 links. Five of them are the first to a page.
        self.assertEqual(self.crawl(), (every, 0, 6))
        # The start page is always fetched, and the one that failed was not marked.
        Site.flaky = False
        self.assertEqual(self.crawl(), ({"/": 1}, 0, 4))
        self.assertEqual(self.redis.bf().info("crawled").insertedNum, len(every) - 1)

    def test_a_page_that_failed_is_fetched_again(self):
        self.crawl()
        Site.flaky = False
        PAGES["/"].append("/flaky")
        self.addCleanup(PAGES["/"].remove, "/flaky")
        self.assertEqual(self.crawl(), ({"/": 1, "/flaky": 1}, 0, 4))
        self.assertEqual(self.crawl(), ({"/": 1}, 0, 5))

    def test_without_the_server_pages_count_as_new(self):
        asked, failures, _ = self.crawl("redis://127.0.0.1:1")
        # Links to pages that were scheduled in this run are dropped all the same. `/` is fetched as
        # the start, which is not filtered, and once more as a link.
        self.assertEqual(asked, dict.fromkeys([*PAGES, "/moved"], 1) | {"/": 2})
        self.assertGreater(failures, 0)

    def test_a_server_that_hangs_is_not_waited_for_again_and_again(self):
        """A server that takes connections and never answers: a connection is one wait."""
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        crawler = get_crawler(settings_dict={"REDIS_URL": url, "BLOOM_KEY": "crawled"})
        dupefilter = DupeFilter(crawler)
        self.addCleanup(dupefilter.close, "finished")
        requests = [scrapy.Request(f"http://example.com/{number}") for number in range(20)]
        for expected in (1, 2):
            self.assertFalse(any(dupefilter.request_seen(request) for request in requests))
            for request in requests:
                dupefilter.downloaded(scrapy.http.Response(request.url), request)
            self.assertEqual(crawler.stats.get_value("bloom/failures"), expected)
            dupefilter.resume_at = 0.0  # the pause is over
            dupefilter.scheduled.clear()


if __name__ == "__main__":
    unittest.main()
