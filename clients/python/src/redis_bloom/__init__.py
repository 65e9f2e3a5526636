"""Bloom filters of redis-bloom in applications, with redis-py and its asyncio.

`Guard`: a filter of all keys in front of a database. `Seen`: what was seen in the last days, and crawling once.
`ShardedFilter`: one filter over the nodes of a cluster. `bulk`: millions of items in packed batches.
Each class has a twin for redis.asyncio, which begins with Async.
"""

from . import bulk
from .guard import AsyncGuard, Guard, Stats
from .seen import AsyncSeen, Seen
from .sharded import AsyncShardedFilter, ShardedFilter

__all__ = ["AsyncGuard", "AsyncSeen", "AsyncShardedFilter", "Guard", "Seen", "ShardedFilter", "Stats", "bulk"]
