"""A dupefilter for Scrapy: a Bloom filter knows the pages that were downloaded, in this run or before."""

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter


class BloomDupeFilter(BaseDupeFilter):
    ERROR_RATE, CAPACITY = 0.0001, 1_000_000

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

    def was_downloaded(self, fingerprint):
        try:
            return bool(self.redis.bf().exists(self.key, fingerprint))
        except redis.RedisError:
            self.stats.inc_value("bloom/failures")
            return False  # better twice than never

    def downloaded(self, response, request):
        """Marks a page once it has come; Scrapy sends the signal for each response."""
        if response.status in self.retried:
            return
        try:
            new = self.redis.bf().insert(
                self.key, [self.fingerprint(request)], capacity=self.CAPACITY, error=self.ERROR_RATE
            )
            if isinstance(new[-1], Exception):
                raise new[-1]
        except redis.RedisError:
            self.stats.inc_value("bloom/failures")

    def close(self, reason):
        self.redis.close()
