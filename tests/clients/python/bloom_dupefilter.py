"""A dupefilter for Scrapy: a Bloom filter knows the pages that were downloaded, in this run or before."""

import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter


class BloomDupeFilter(BaseDupeFilter):
    ERROR_RATE, CAPACITY = 0.0001, 1_000_000
    PAUSE = 5.0  # seconds without a question after the server gave no answer: Scrapy stands still while it waits for one

    def __init__(self, crawler):
        settings = crawler.settings
        self.redis = redis.Redis.from_url(
            settings["REDIS_URL"], socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
        )
        self.key = settings["BLOOM_KEY"]
        self.retried = set(settings.getlist("RETRY_HTTP_CODES"))
        self.fingerprint = crawler.request_fingerprinter.fingerprint
        self.stats = crawler.stats
        self.scheduled = set()  # the requests of this process
        self.resume_at = 0.0
        crawler.signals.connect(self.downloaded, signal=signals.response_downloaded)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def request_seen(self, request):
        """Scrapy asks this of each request before it is scheduled."""
        fingerprint = self.fingerprint(request)
        if fingerprint in self.scheduled or self.was_downloaded(fingerprint):
            return True
        self.scheduled.add(fingerprint)
        return False

    def log(self, request, spider):
        """Scrapy tells of each request that it drops."""
        self.stats.inc_value("dupefilter/filtered")  # as its own dupefilter does

    def was_downloaded(self, fingerprint):
        return bool(self.ask("BF.EXISTS", self.key, fingerprint))  # if it gave no answer: better twice than never

    def downloaded(self, response, request):
        """Marks a page once it has come; Scrapy sends the signal for each response."""
        if response.status in self.retried:
            return
        words = ["CAPACITY", self.CAPACITY, "ERROR", self.ERROR_RATE, "ITEMS", self.fingerprint(request)]
        new = self.ask("BF.INSERT", self.key, *words)
        if new and isinstance(new[-1], Exception):  # redis-py does not raise an error that is inside an array
            self.stats.inc_value("bloom/failures")

    def ask(self, *command):
        """The answer to a command, or None if there is none."""
        if time.monotonic() < self.resume_at:
            return None
        try:
            return self.redis.execute_command(*command)
        except redis.RedisError as error:
            self.stats.inc_value("bloom/failures")
            if not isinstance(error, redis.ResponseError):  # it took time
                self.resume_at = time.monotonic() + self.PAUSE

    def close(self, reason):
        self.redis.close()
