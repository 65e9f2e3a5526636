"""A cluster under load and faults for a long time, with an exact model of what its filters must have.

    python soak.py SECONDS PICTURE [SEED]

Three primaries with a replica each. Threads add items one by one and in packed batches, delete from counting filters,
feed windows of items and of time, and ask primaries and replicas for items that are there and that are not. Meanwhile
nodes are killed, some until their replica takes over, or stopped for a while; slots move, disks are full, files are
rewritten, and replicas copy all anew, one fault at a time.

The model: an item whose addition was confirmed by a replica (WAIT) and that was not deleted must be found, always; in a
window, for as long as docs/guide/windows.md promises. Nothing is expected of an item whose addition or deletion failed. What
is out of a window must be forgotten. A filter of MOST items is checked as a whole, then it begins anew. Ends with 1 if an
item was lost, too many absent or forgotten ones are found, or nothing was done of what is to be tested; prints what was
done, and draws the memory of each node over time into PICTURE (SVG).
"""

import collections
import contextlib
import functools
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cluster import Cluster, Node
from server import until

RATE = 0.001
MOST = 40_000  # items of a filter, then it begins anew: the memory of the cluster stays within bounds
FULL = "16384"  # bytes that a file may have on a full disk: enough for the nodes.conf of a cluster
NODE_TIMEOUT = "3000"  # milliseconds; on a busy machine a node may stop for a second without a fault
WIDTH, HEIGHT = 900, 300  # of the picture

BAD = ("LOST", "replicas that differ", "commands that find too many")  # what must not be counted

done = collections.Counter()


class SoakNode(Node):
    def start(self, *_, wait=True):
        # A kill leaves what was written to the file, and a full disk ends no server. `everysec` writes later than it
        # answers while the disk is slow.
        options = ["--appendonly", "yes", "--appendfsync", "no", "--cluster-node-timeout", NODE_TIMEOUT]
        # Another program may have taken a port since the node was killed.
        until(self.has_its_ports, "the ports of the node are free")
        super(Node, self).start(*options, wait=wait)

    def has_its_ports(self):
        with contextlib.suppress(OSError):
            for port in (self.port, self.port + 10_000):
                socket.create_server(("127.0.0.1", port)).close()
            return True


def connect_to(cluster):
    return redis.RedisCluster.from_url(
        cluster.url, socket_timeout=2.0, socket_connect_timeout=2.0, retry=Retry(NoBackoff(), 0)
    )


def connect(port):
    return redis.Redis(port=port, socket_timeout=2.0, retry=Retry(NoBackoff(), 0))


class Model:
    """A filter, and the items that must be in it."""

    def __init__(self, client, tag, dice):
        self.client, self.tag, self.dice = client, tag, dice
        self.added = 0
        self.key, self.items = f"{{{tag}}}:0", {}

    def confirmed(self, *words):
        """Runs a command; returns its reply once a replica has its effect. Raises if anything of it is uncertain."""
        try:
            node = self.client.get_node_from_key(words[1])
            # All over one connection, so that WAIT is answered by the node that ran the command. WAIT waits for what its
            # own connection has written, and a command that changes nothing writes nothing.
            pipeline = self.client.get_redis_connection(node).pipeline(transaction=False)
            pipeline.execute_command(*words).set(f"{{{self.tag}}}:wait", 1).wait(1, 1000)
            reply, was_set, replicas = pipeline.execute(raise_on_error=False)
        except (redis.RedisError, OSError):
            self.client.nodes_manager.initialize()
            raise
        if isinstance(reply, redis.exceptions.AskError):  # the slot moves; this addition counts as failed
            with connect(reply.port) as target:
                target.pipeline(transaction=False).execute_command("ASKING").execute_command(*words).execute()
        elif isinstance(reply, redis.exceptions.MovedError):
            self.client.nodes_manager.initialize()
        for one in (was_set, replicas, reply):
            if isinstance(one, Exception):
                raise one
        if replicas < 1:
            raise TimeoutError("no replica has it")
        return reply

    def insist(self, *words):
        """Repeats a command whose repetition does no harm until it is confirmed."""

        def attempt():
            try:
                self.confirmed(*words)
            except redis.ResponseError as error:
                return str(error) == "item exists"
            except (redis.RedisError, TimeoutError, OSError):
                return False
            return True

        until(attempt, f"{words[0]} is done")

    def new_names(self, count):
        self.added += count
        return [f"{self.tag}:{number}" for number in range(self.added - count, self.added)]

    def send(self, items, is_packed):
        """Adds items; returns for each whether it was new."""
        if is_packed:
            reply = self.confirmed("BF.BULKADD", self.key, "NOCREATE", "LINES", "".join(f"{item}\n" for item in items))
            bits = reply[1]
            answers = [bits[i // 8] >> (7 - i % 8) & 1 for i in range(reply[0])]
            is_whole = len(reply) == 2
        else:
            reply = answers = self.confirmed("BF.INSERT", self.key, "NOCREATE", "ITEMS", *items)
            is_whole = not isinstance(reply[-1], Exception)
        if not is_whole or len(answers) != len(items):
            raise AssertionError(f"{self.key} took a part of a batch: {reply}")
        done["items added"] += len(items)
        done[f"items added to {self.kind} filters"] += len(items)
        return answers

    def ask(self, items, replica=False):
        """Whether each item is there; None if a replica does not know the filter, or is none."""
        if not replica:
            return self.client.execute_command("BF.MEXISTS", self.key, *items)
        node = self.client.get_node_from_key(self.key, replica=True)
        if not node:
            return None
        with connect(node.port) as client:
            client.execute_command("READONLY")
            # While a slot moves, or all is copied anew, the replica has no such key, and answers "no".
            transaction = client.pipeline().exists(self.key).role().execute_command("BF.MEXISTS", self.key, *items)
            has_key, role, answers = transaction.execute()
        return answers if has_key and role[0] in (b"slave", "slave") else None

    def report(self, missing, where):
        if missing:
            done["LOST"] += len(missing)
            print(f"LOST: {len(missing)} items of {self}, {where}: {missing[:3]} ...", flush=True)

    def check(self, items, replica=False):
        """Whether there was an answer for the items. Reports those that must be found and are not."""
        items = [item for item in items if item in self.items]
        answers = self.ask(items, replica) if items else []
        answered = time.time()
        if answers is None:
            return False
        asked = {
            item: there for item, there in zip(items, answers, strict=True) if self.is_promised(self.items[item], answered)
        }
        done[f"items asked for{' in a replica' if replica else ''}"] += len(asked)
        missing = [item for item, there in asked.items() if not there]
        self.report(missing, f"replica: {replica}")
        for item in missing:
            del self.items[item]
        return True

    def ask_absent(self):
        self.count_found([f"absent:{self.dice.getrandbits(64)}" for _ in range(200)], "absent")

    def count_found(self, items, what, replica=False):
        """Counts how many of the items that are not there are found."""
        if items and (answers := self.ask(items, replica)):
            self.count(what, len(items), sum(map(bool, answers)))

    def count(self, what, asked, found):
        """Counts what one command found of items that are not there, and reports it if that cannot be chance."""
        done[f"{what} items asked for"] += asked
        done[f"{what} items found"] += found
        # A command asks for n <= 1000 items and finds m = n RATE <= 1 on average: all generations of a window together have
        # the rate that was asked for. The number found is about Poisson distributed, so more than 10 + 5 m are found with a
        # probability below 3e-14, and below 5e-10 if the seed of a filter doubles its rate. An hour has about 1e5 commands.
        if found > 10 + 5 * RATE * asked:
            done["commands that find too many"] += 1
            print(f"WRONG: of {asked} {what} items {found} are found in {self}", flush=True)

    def digests(self):
        """Of the primary and of its replica."""
        with contextlib.suppress(redis.RedisError, OSError):
            self.client.nodes_manager.initialize()
            nodes = [self.client.get_node_from_key(self.key, replica) for replica in (False, True)]
            return all(nodes) and [connect(node.port).execute_command("DEBUG", "DIGEST-VALUE", self.key) for node in nodes]

    def check_all(self):
        """When no fault is left, and nothing adds: all items, in the primary and in its replica, and that these are equal."""
        self.insist("SET", f"{{{self.tag}}}:last", 1)
        first, second = until(self.digests, "both answer")
        done["replicas compared bit by bit"] += 1
        if first != second:
            done["replicas that differ"] += 1
            print(f"DIFFERS: {self}", flush=True)

        def attempt(items, replica):
            with contextlib.suppress(redis.RedisError, OSError):
                return self.check(items, replica)

        for part, replica in self.questions():
            until(lambda: attempt(part, replica), "the filter answers")
            done["items of whole filters checked"] += len(part)

    def questions(self):
        """All items that must be found, 1,000 at a time, each time with whether to ask the replica or the primary."""
        items = self.promised()
        starts = range(0, len(items), 1000)
        return [(items[start : start + 1000], replica) for replica in (False, True) for start in starts]


class Filter(Model):
    """A filter that forgets nothing, until it begins anew."""

    def __init__(self, client, tag, dice, kind):
        super().__init__(client, tag, dice)
        self.kind = kind
        self.begin()

    def __str__(self):
        return f"{self.key} ({self.kind})"

    def begin(self):
        self.key, self.items = f"{{{self.tag}}}:{self.added}", {}
        self.unchecked = []
        # Small at first, so that filters grow; one with counters is for its peak.
        self.insist("BF.RESERVE", self.key, RATE, *([MOST, "COUNTING"] if self.kind == "counting" else [MOST // 8]))

    def step(self):
        if self.unchecked or len(self.items) >= MOST:
            self.check_and_begin_anew()
            return
        what = self.dice.random()
        if what < 0.5:
            new = self.new_names(self.dice.choice((1, 20, 500)))
            self.send(new, self.kind == "packed")
            self.items.update(dict.fromkeys(new))
        elif what < 0.6 and self.kind == "counting" and self.items:
            self.delete()
        elif what < 0.9 and self.items:
            self.check(self.dice.sample(self.promised(), min(len(self.items), 200)), self.dice.random() < 0.3)
        else:
            self.ask_absent()

    def check_and_begin_anew(self):
        """Checks all items and begins anew. If a fault prevents a question, a later step asks it again."""
        self.unchecked = self.unchecked or self.questions()
        self.client.nodes_manager.initialize()  # its replica may be another since then
        while self.unchecked:
            part, replica = self.unchecked[-1]
            if not self.check(part, replica):
                return
            self.unchecked.pop()
            done["items of whole filters checked"] += len(part)
            done["items checked before their filter is removed"] += len(part)
        self.insist("UNLINK", self.key)
        done["filters begun anew"] += 1
        self.begin()

    def delete(self):
        out = self.dice.sample(list(self.items), min(len(self.items), 10))
        self.check(out)
        out = [item for item in out if item in self.items]  # but those that are lost
        for item in out:  # whatever the answer is
            del self.items[item]
        if out:
            self.confirmed("BF.DEL", self.key, *out)
            done["items deleted"] += len(out)

    def promised(self):
        return list(self.items)

    def is_promised(self, *_):
        return True


# The last confirmed addition of an item that counts: when it was sent and answered, the number of the item among all that
# were sent, and how many were certainly written then. `certain`: no addition of it has failed since.
Stamp = collections.namedtuple("Stamp", "sent answered number written certain")


class Window(Model):
    """A filter that remembers the last `size` items, or if `seconds` is given, the items of the last seconds.

    All servers and this program read the clock of one machine, so the time of a server is within [sent, answered] of
    the command. It is cut to whole milliseconds.
    """

    def __init__(self, client, tag, dice, seconds, refresh):
        super().__init__(client, tag, dice)
        self.kind = f"window of {'items' if seconds is None else 'time'}"
        self.seconds, self.refresh = seconds, refresh
        self.size, self.parts = dice.choice((1000, 8000)), dice.choice((1, 2, 4, 32))
        # `items` has the stamp of each, oldest first.
        self.sent, self.written = 0, 0  # items that may have been written, and that certainly were
        self.idle_until = 0
        words = ["COUNT"] if seconds is None else ["EX", seconds]
        words += ["GENERATIONS", self.parts, *([] if refresh else ["NOREFRESH"])]
        self.insist("BF.RESERVE", self.key, RATE, self.size, "WINDOW", *words)

    def __str__(self):
        span = f"{self.size} items" if self.seconds is None else f"{self.seconds} s"
        return f"{self.key} (last {span}, {self.parts} generations, refresh {self.refresh})"

    def is_promised(self, stamp, answered):
        """Whether a question that was answered at that time had to find the item."""
        if self.seconds is None:
            # It is one of the last N that were sent, and at most these were written, on whichever node.
            return self.sent - stamp.number < self.size
        # Until T after its addition. A cut time of a question is not later than its answer; the cut time of an addition
        # is up to 1 ms before it was sent.
        return answered - stamp.sent < self.seconds - 0.001

    def is_forgotten(self, stamp, sent):
        """Whether a question that was sent at that time finds the item with the error rate only."""
        if not stamp.certain:
            return False
        if self.seconds is None:
            # N/G were written to the generation of the item, and to each of the G that followed, and one more.
            return self.written - stamp.written >= (self.parts + 1) * -(-self.size // self.parts)
        # T (1 + 1/G) after its generation began, which is not later than its addition. The cut time of a question is up
        # to 1 ms before it was sent.
        return sent - stamp.answered > self.seconds * (1 + 1 / self.parts) + 0.001

    def promised(self):
        now = time.time()
        return [item for item, stamp in self.items.items() if self.is_promised(stamp, now)]

    def step(self):
        what = self.dice.random()
        if what < 0.5:
            self.add()
        elif what < 0.8:
            # Half of them the oldest, which are next to go.
            items = self.promised()
            if items:
                some = dict.fromkeys([*items[:100], *self.dice.sample(items, min(len(items), 100))])
                self.check(list(some), self.dice.random() < 0.4)
        elif what < 0.92:
            self.sweep()
        elif what < 0.94:
            done["generations given back by BF.FORGET"] += self.confirmed("BF.FORGET", self.key)
        else:
            self.ask_absent()

    def add(self):
        if time.time() < self.idle_until:
            return
        if self.seconds and self.dice.random() < 0.001:  # up to more than all generations live
            self.idle_until = time.time() + self.dice.uniform(0, 1.2) * self.seconds * (1 + 1 / self.parts)
        count = self.dice.choice((1, 20, 500))
        known, few = list(self.items), count // 8
        again = [*known[:few], *self.dice.sample(known, min(len(known), few))]
        batch = list(dict.fromkeys([*self.new_names(count), *again]))
        self.dice.shuffle(batch)
        before = {item: self.items[item] for item in batch if item in self.items}
        for item, stamp in before.items():
            self.items[item] = stamp._replace(certain=False)
        first, sent, written = self.sent, time.time(), self.written
        self.sent += len(batch)
        was_forgotten = {item for item, stamp in before.items() if self.is_forgotten(stamp, sent)}
        answers = self.send(batch, self.dice.random() < 0.5)
        answered = time.time()
        self.written = written + sum(answers)
        lost, absent = [], []
        for number, (item, new) in enumerate(zip(batch, answers, strict=True), first + 1):
            old = before.get(item)
            if old and new and self.is_promised(old, answered):
                lost.append(item)
            if not old or item in was_forgotten:
                absent.append(not new)
            if new or self.refresh:
                self.items.pop(item, None)
                self.items[item] = Stamp(sent, answered, number, self.written, True)
            elif old:  # known: it was not written
                self.items[item] = old
        self.count("absent", len(absent), sum(absent))
        self.report(lost, "when added again")

    def sweep(self):
        """Asks once for each item that must be forgotten."""
        now, out = time.time(), []
        for item, stamp in self.items.items():
            is_out = self.is_forgotten(stamp, now)
            if len(out) == 1000 or not is_out and (stamp.certain or self.is_promised(stamp, now)):
                break
            out.append((item, is_out))
        self.count_found([item for item, is_out in out if is_out], "forgotten", self.dice.random() < 0.4)
        for item, _ in out:
            del self.items[item]

    def end(self):
        """When all items are forgotten: nothing finds them, the memory is given back, and the filter can be used."""
        now = time.time()
        out = [item for item, stamp in self.items.items() if self.is_forgotten(stamp, now)]
        self.items.clear()
        for start in range(0, len(out), 1000):
            for replica in (False, True):
                self.count_found(out[start : start + 1000], "forgotten", replica)
        self.insist("BF.FORGET", self.key)
        left = self.client.execute_command("BF.INFO", self.key)
        if left[b"Number of items inserted"] != 0 or left[b"Number of filters"] != 1:
            raise AssertionError(f"of {self} all is forgotten, but {left}")
        until(lambda: self.try_to_add(), "items are added")
        self.check_all()

    def try_to_add(self):
        self.idle_until = 0
        with contextlib.suppress(redis.RedisError, TimeoutError, OSError):
            self.add()
        return self.items


# Errors of a server or a cluster with a fault, for which the client has no class of its own.
PASSING = ("MISCONF", "NOREPLICAS", "UNBLOCKED", "CROSSSLOT")
SPANS = (5, 8, 30)  # seconds of the windows of time; the longest outlives a failover


class Load(threading.Thread):
    """Works on its own filters, so that the model of each is exact."""

    def __init__(self, cluster, number, seed):
        super().__init__()
        self.client = connect_to(cluster)
        self.dice = random.Random(f"{seed} {number}")
        self.ends, self.error = False, None
        self.goes_on, self.works = threading.Event(), threading.Lock()  # the lock is held during each step
        self.goes_on.set()
        kinds = [functools.partial(Filter, kind=kind) for kind in ("plain", "packed", "counting")]
        for refresh in (True, False):
            for seconds in (None, *SPANS):
                kinds.append(functools.partial(Window, seconds=seconds, refresh=refresh))
        self.models = [kind(self.client, tag(number, i), self.dice) for i, kind in enumerate(kinds)]

    def run(self):
        while not self.ends and not self.error:
            self.goes_on.wait()
            try:
                with self.works:
                    self.dice.choice(self.models).step()
            except (redis.RedisError, TimeoutError, OSError) as error:
                if type(error) is redis.ResponseError and not str(error).startswith(PASSING):
                    self.error = error
                refusal = type(error) is redis.ResponseError and str(error).split(maxsplit=1)[0]
                done[f"refused: {refusal or type(error).__name__}"] += 1
                time.sleep(0.1)
            except Exception as error:
                self.error = error

    def check_all(self):
        self.goes_on.clear()
        try:
            with self.works:
                for model in self.models:
                    model.check_all()
        finally:
            self.goes_on.set()


LOADS, FILTERS = 2, 3 + 2 * (1 + len(SPANS))


def tag(load, number):
    return f"soak-{load}-{number}"


class Faults:
    def __init__(self, cluster, dice):
        self.cluster, self.dice = cluster, dice
        self.seen = []  # when each fault began, and its name
        self.client = connect_to(cluster)

    def primaries(self):
        return [node for node in self.cluster.nodes if self.cluster.run(node, "INFO", "replication")["role"] == "master"]

    def one(self):
        faults = (self.kill, self.kill_until_failover, self.stop, self.copy_anew, self.move_a_slot)
        faults += (self.fill_the_disk, self.save_to_a_full_disk, self.rewrite)
        fault = self.dice.choice(faults)
        self.seen.append((time.monotonic(), fault.__name__))
        fault()
        done[f"fault: {fault.__name__}"] += 1
        until(self.is_settled, f"the cluster is up after {fault.__name__}")

    def is_settled(self):
        """Whether all nodes are up and know the same, and each replica has the data of its primary."""
        views = set()
        for node in self.cluster.nodes:
            if not self.cluster.is_linked(node):
                return False
            nodes = self.cluster.run(node, "CLUSTER NODES").values()
            flags = [one["flags"].replace("myself,", "") for one in nodes]
            views.add(str(sorted((one["node_id"], flag, one["slots"]) for one, flag in zip(nodes, flags, strict=True))))
            if any(flag not in ("master", "slave") for flag in flags):
                return False
        return len(views) == 1

    def kill(self):
        node = self.dice.choice(self.cluster.nodes)
        node.kill()
        node.start()

    def kill_until_failover(self):
        node = self.dice.choice(self.primaries())
        before = {one.port for one in self.primaries()}
        node.kill()
        others = [one for one in self.cluster.nodes if one is not node]

        def taken_over():
            roles = [self.cluster.run(one, "INFO", "replication")["role"] for one in others]
            states = [self.cluster.run(one, "CLUSTER INFO")["cluster_state"] for one in others]
            return roles.count("master") == len(before) and set(states) == {"ok"}

        until(taken_over, "the replica takes over")
        node.start()

    def stop(self):
        """A node stops for a while. If its replica takes over, the node still believes to be a primary when it goes on."""
        node = self.dice.choice(self.cluster.nodes)
        node.signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.2, 8))
        node.signal(signal.SIGCONT)

    def copy_anew(self):
        """A replica loses its files, so that its primary must send it everything."""
        primaries = self.primaries()
        node = self.dice.choice([node for node in self.cluster.nodes if node not in primaries])
        node.kill()
        path = pathlib.Path(node.directory.name)
        kept = (path / "nodes.conf").read_bytes()
        node.remove_data()
        (path / "nodes.conf").write_bytes(kept)
        node.start()

    def move_a_slot(self):
        """A slot with a filter goes to another primary."""
        run = self.cluster.run
        name = tag(self.dice.randrange(LOADS), self.dice.randrange(FILTERS))
        slot = self.client.keyslot(f"{{{name}}}")
        primaries = self.primaries()
        source = next(node for node in primaries if run(node, "CLUSTER COUNTKEYSINSLOT", slot))
        target = self.dice.choice([node for node in primaries if node is not source])
        ids = {node: run(node, "CLUSTER MYID").decode() for node in (source, target)}
        run(target, "CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
        run(source, "CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
        # A key that is still in the source is newer than that in the target, after an attempt that broke off.
        migrate = lambda *keys: run(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        while there := run(source, "CLUSTER GETKEYSINSLOT", slot, 10):
            until(lambda: self.accepted(migrate, *there), "the keys are moved")
        for node in (target, source, *(one for one in primaries if one not in (source, target))):
            run(node, "CLUSTER SETSLOT", slot, "NODE", ids[target])
        # The keys must be on a replica before the next fault.
        with target.client() as client:
            until(lambda: self.accepted(client.set, f"{{{name}}}:moved", 1), "the slot is served")
            until(lambda: client.wait(1, 1000), "the replica has the slot")

    def accepted(self, command, *words):
        """Whether a command is done. On a busy machine a node may be out of reach for a moment, and the cluster down."""
        try:
            command(*words)
        except (redis.ResponseError, redis.ConnectionError) as error:
            done[f"refused to a fault: {type(error).__name__}"] += 1
            return False
        return True

    @contextlib.contextmanager
    def full_disk(self):
        node = self.dice.choice(self.primaries())
        limit = lambda bytes: subprocess.run(["prlimit", f"--pid={node.process.pid}", f"--fsize={bytes}:"], check=True)
        limit(FULL)
        yield node
        limit("unlimited")
        status = lambda: self.cluster.run(node, "INFO", "persistence")["aof_last_write_status"]
        until(lambda: status() == "ok", "the file is written again")

    def fill_the_disk(self):
        with self.full_disk():
            time.sleep(3)

    def save_to_a_full_disk(self):
        with self.full_disk() as node:
            if self.save(node) == "ok":
                done["files that fitted on a full disk"] += 1
        if self.save(node) != "ok":
            raise AssertionError("no BGSAVE")

    def save(self, node):
        info = lambda: self.cluster.run(node, "INFO", "persistence")
        until(lambda: not info()["aof_rewrite_in_progress"], "no file is rewritten")
        self.cluster.run(node, "BGSAVE")
        until(lambda: not info()["rdb_bgsave_in_progress"], "it is saved")
        return info()["rdb_last_bgsave_status"]

    def rewrite(self):
        node = self.dice.choice(self.cluster.nodes)
        self.cluster.run(node, "BGREWRITEAOF")
        info = lambda: self.cluster.run(node, "INFO", "persistence")
        until(lambda: not info()["aof_rewrite_in_progress"] and not info()["aof_rewrite_scheduled"], "it is rewritten")


class Memory(threading.Thread):
    """The memory of each node, once a second; a node that is down has none."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.ends = cluster, threading.Event()
        self.courses = [[] for _ in cluster.nodes]
        self.begin = time.monotonic()

    def run(self):
        while not self.ends.wait(1):
            for node, course in zip(self.cluster.nodes, self.courses):
                try:
                    used = self.cluster.run(node, "INFO", "memory")["used_memory"]
                except (redis.RedisError, OSError):
                    used = None
                course.append((time.monotonic() - self.begin, used))

    def draw(self, path, faults):
        """Draws the courses, and a tick for each fault with its name as a tooltip."""
        points = [point for course in self.courses for point in course if point[1]]
        end, most = max(at for at, _ in points), max(used for _, used in points)
        x, y = lambda at: 50 + at / end * WIDTH, lambda used: 20 + HEIGHT * (1 - used / most)
        lines = []
        for number, course in enumerate(self.courses):
            steps, pen = [], "M"
            for at, used in course:
                if used:
                    steps.append(f"{pen}{x(at):.1f} {y(used):.1f}")
                pen = "L" if used else "M"
            color = f"hsl({number * 60} 70% 40%)"
            lines.append(f'<path d="{"".join(steps)}" fill="none" stroke="{color}"/>')
            lines.append(f'<text x="{WIDTH - 380 + 70 * number}" y="14" fill="{color}">node {number}</text>')
        for at, name in faults:
            tick = f'<path d="M{x(at - self.begin):.1f} {HEIGHT + 20}v6" stroke="black">'
            lines.append(f"{tick}<title>{name}</title></path>")
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 70}" height="{HEIGHT + 60}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(lines)}'
            f'<path d="M50 20V{HEIGHT + 20}H{WIDTH + 50}" fill="none" stroke="black"/>'
            f'<text x="52" y="14">used_memory of each of six nodes, up to {most / 1e6:.1f} MB</text>'
            f'<text x="50" y="{HEIGHT + 42}">0, with a tick for each fault</text>'
            f'<text x="14" y="{HEIGHT // 2 + 24}">{most / 2e6:.1f}</text>'
            f'<text x="{WIDTH + 50}" y="{HEIGHT + 42}" text-anchor="end">{end:.0f} s</text></svg>\n'
        )
        for number, course in enumerate(self.courses):
            used = [used for _, used in course if used]
            quarter = max(1, len(used) // 4)
            parts = [sum(part) / len(part) / 1e6 for part in (used[i : i + quarter] for i in range(0, 4 * quarter, quarter)) if part]
            print(f"memory of node {number}, by quarters of the time: {', '.join(f'{part:.1f}' for part in parts)} MB")


def result():
    faults = sum(count for what, count in done.items() if what.startswith("fault: "))
    return f"{faults} faults, {done['items added']} items added, {done['LOST']} lost"


def main(seconds, picture, seed):
    print(f"soak: {seconds} s, seed {seed}", flush=True)
    cluster = Cluster(SoakNode)
    try:
        loads = [Load(cluster, number, seed) for number in range(LOADS)]
        memory, faults = Memory(cluster), Faults(cluster, random.Random(seed))
        for thread in (memory, *loads):
            thread.start()
        try:
            begin, minutes = time.monotonic(), 0
            while (passed := time.monotonic() - begin) < seconds and not any(load.error for load in loads):
                if passed >= 60 * minutes:
                    if minutes % 10 == 9:
                        for load in loads:
                            load.check_all()
                    print(f"{passed:.0f} s: {result()}", flush=True)
                    minutes += 1
                time.sleep(faults.dice.uniform(0.5, 3))
                faults.one()
        finally:
            for load in loads:
                load.ends = True
            for load in loads:
                load.join()
            memory.ends.set()
            memory.join()
        for load in loads:
            if load.error:
                raise load.error
        memory.draw(pathlib.Path(picture), faults.seen)
        for load in loads:
            load.check_all()
        time.sleep(2 * max(SPANS) + 1)  # of one generation, an item is remembered for twice the window at most
        for model in (model for load in loads for model in load.models):
            if isinstance(model, Window) and model.seconds:
                model.end()
    finally:
        cluster.close()
    for what, count in sorted(done.items()):
        print(f"{count:10} {what}")
    for what in ("absent", "forgotten"):
        share = done[f"{what} items found"] / max(1, done[f"{what} items asked for"])
        print(f"{what} items found: {share:.4%}, asked for {RATE:.4%}")
    # The rate holds on average over seeds: of a few filters it may be higher by chance. Twice the mean and 20 are nine
    # standard deviations and more above it, whatever the mean is.
    wrong = [
        what for what in ("absent", "forgotten")
        if done[f"{what} items found"] > 2 * RATE * done[f"{what} items asked for"] + 20
    ]  # fmt: skip
    for what in wrong:
        print(f"WRONG: too many {what} items are found")
    needed = ["items added", "items asked for", "items of whole filters checked", "forgotten items asked for"]
    if seconds >= 60:  # a minute does each of these about a hundred times or more; a shorter run may do none, by chance
        needed += ["items asked for in a replica", "absent items asked for", "items deleted"]
        kinds = dict.fromkeys(model.kind for load in loads for model in load.models)
        needed += [f"items added to {kind} filters" for kind in kinds]
    undone = [what for what in needed if not done[what]]
    undone += [] if any(what.startswith("fault: ") for what in done) else ["faults"]
    for what in undone:
        print(f"WRONG: there are no {what}")
    print(f"memory: {picture}")
    print(f"soak: {result()}")
    return 1 if any(done[what] for what in BAD) or wrong or undone else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else random.getrandbits(32)))
