"""A dupefilter for Scrapy: a filter knows the pages that were downloaded, in this run or before.

    DUPEFILTER_CLASS = "redis_bloom.scrapy.DupeFilter"
    REDIS_URL = "redis://127.0.0.1:6379"
    BLOOM_KEY = "crawled:myspider"
    BLOOM_CAPACITY, BLOOM_ERROR, BLOOM_WITHIN_DAYS = 1_000_000, 0.0001, 7   # defaults: 1_000_000, 0.0001, no window

A page is marked when its response has come, unless Scrapy will try it again (RETRY_HTTP_CODES). If the
server gives no answer, pages count as new: `bloom/failures` in the statistics counts that.
"""

from __future__ import annotations

import datetime
import time
from typing import Any, Callable, Optional

import redis
from scrapy import signals
from scrapy.dupefilters import BaseDupeFilter

from ._steps import with_timeout
from .seen import Seen

PAUSE = 5.0  # seconds without a query after the server gave no answer: Scrapy stands still while it waits for one


class DupeFilter(BaseDupeFilter):
    """Drops requests that this process has scheduled, and those that any crawler has downloaded."""

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        self._client = with_timeout(redis.Redis.from_url(settings["REDIS_URL"]), 0.5)
        self._seen = Seen(
            self._client,
            settings["BLOOM_KEY"],
            capacity=settings.getint("BLOOM_CAPACITY", 1_000_000),
            error=settings.getfloat("BLOOM_ERROR", 0.0001),
            within=datetime.timedelta(days=settings.getfloat("BLOOM_WITHIN_DAYS", 0)),
        )
        self._retried = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self._stats = crawler.stats
        self.scheduled: set[bytes] = set()
        self.resume_at = 0.0
        crawler.signals.connect(self.downloaded, signal=signals.response_downloaded)

    @classmethod
    def from_crawler(cls, crawler: Any) -> DupeFilter:
        return cls(crawler)

    def request_seen(self, request: Any) -> bool:
        fingerprint = self._fingerprint(request)
        if fingerprint in self.scheduled or self._try(self._seen.has, fingerprint):
            return True
        self.scheduled.add(fingerprint)
        return False

    def log(self, request: Any, spider: Any) -> None:
        self._stats.inc_value("dupefilter/filtered")  # as Scrapy's own does

    def downloaded(self, response: Any, request: Any) -> None:
        """Marks a page; Scrapy sends the signal for each response."""
        if response.status not in self._retried:
            self._try(self._seen.add, self._fingerprint(request))

    def _try(self, do: Callable[[bytes], bool], fingerprint: bytes) -> Optional[bool]:
        if time.monotonic() < self.resume_at:
            return None
        try:
            return do(fingerprint)
        except redis.RedisError as error:
            self._stats.inc_value("bloom/failures")
            if not isinstance(error, redis.ResponseError):  # it took time
                self.resume_at = time.monotonic() + PAUSE
            return None

    def close(self, reason: str) -> None:
        self._client.connection_pool.disconnect()
