from collections import OrderedDict
import threading
import redis


class Recent:
    """The last items of a filter that were found: a "yes" stays right, so it needs no second query."""

    def __init__(self, ask, size):
        self.ask, self.size = ask, size  # ask(item): the filter's answer
        self.found = OrderedDict()  # one Recent for each thread, or a lock around contains

    def contains(self, item):
        if item in self.found:
            self.found.move_to_end(item)
            return True
        if not self.ask(item):
            return False  # never kept: another process may add it now
        self.found[item] = True
        if len(self.found) > self.size:
            self.found.popitem(last=False)
        return True


class Batch:
    """Items (bytes without \\n) that this process takes; flush() sends them, called every second and at the end."""

    def __init__(self, client, key, size):
        self.client, self.key, self.size = client, key, size
        self.lock, self.sending = threading.Lock(), threading.Lock()
        self.taken, self.waiting = OrderedDict(), []

    def take(self, item):
        """Whether this process takes the item for the first time. Queries no server."""
        with self.lock:
            if item in self.taken:
                return False
            self.taken[item] = True
            if len(self.taken) > self.size:
                self.taken.popitem(last=False)
            self.waiting.append(item)
            return True

    def flush(self):
        """Sends all that waits. Returns the items that no process has sent before."""
        new = []
        with self.sending:
            while self.waiting:
                items = self.waiting[:10_000]
                blob = b"".join(item + b"\n" for item in items)
                try:
                    count, bits, *error = self.client.execute_command("BF.BULKADD", self.key, "NOCREATE", "LINES", blob)
                except redis.RedisError:
                    if new:
                        break  # the caller gets what is new so far, and the error from the next flush
                    raise
                with self.lock:  # only now: after an error they wait for the next flush
                    del self.waiting[:count]
                new += [item for number, item in enumerate(items[:count]) if bits[number // 8] << number % 8 & 128]
                if error:  # the filter is full
                    if count or new:
                        break
                    raise error[0]
        return new


def host_replica(socket, cluster=False):
    """A client of the replica on this host."""

    def connect(connection):
        connection.on_connect()
        connection.send_command("READONLY")  # without it, a replica of a cluster answers MOVED
        connection.read_response()

    return redis.Redis(unix_socket_path=socket, redis_connect_func=connect if cluster else None)


def contains(replica, primary, key, item):
    """A "yes" of the replica is right; a "no" may be older than the item, so it queries the primary."""
    return bool(replica.bf().exists(key, item) or primary.bf().exists(key, item))
