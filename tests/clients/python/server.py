"""A server with the module that a test can kill, stop, and start again at the same address; a proxy."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import redis

DEADLINE = 60  # seconds; only a failing test waits that long


def until(condition, what):
    """Waits until `condition()` is true, and returns it."""
    end = time.monotonic() + DEADLINE
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"waited {DEADLINE} s until {what}")
        time.sleep(0.02)


def free_port():
    """A port that is free, as is the one 10,000 above it, where a node of a cluster listens, too.

    Both are below 32,768: a connection of any program may take a higher one at any time.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """REDIS_SERVER and REDIS_BLOOM_SO name server and module. Its AOF is synced at each command."""

    def __init__(self, *options):
        self.options = options
        self.process = None
        self.directory = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start("--appendonly", "yes")

    def start(self, *options, wait=True):
        self.log = open(pathlib.Path(self.directory.name, "log"), "ab")
        command = [os.environ.get("REDIS_SERVER", "redis-server"), "--port", str(self.port)]
        command += ["--bind", "127.0.0.1", "--dir", self.directory.name, "--save", "", "--appendfsync", "always"]
        command += ["--enable-debug-command", "yes"]
        command += ["--loadmodule", os.path.realpath(os.environ["REDIS_BLOOM_SO"])]
        # Python ignores SIGXFSZ, and the server shall, too: a file that may not grow is an error, not its end.
        self.process = subprocess.Popen(
            [*command, *self.options, *options], stdout=self.log, stderr=self.log, restore_signals=False
        )
        if wait:
            until(self.is_ready, "the server answers")

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(pathlib.Path(self.directory.name, "log").read_text())
        with redis.Redis(port=self.port) as client:
            try:
                return client.ping()
            except (redis.ConnectionError, redis.ResponseError):
                return False

    def client(self):
        return redis.Redis(port=self.port, socket_timeout=DEADLINE)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def remove_data(self):
        for path in pathlib.Path(self.directory.name).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.directory.cleanup()


class Proxy:
    """Passes bytes between clients and a server, until a connection is to seem dead."""

    def __init__(self, port):
        self.port = port
        self.frozen = set()  # the connections that no longer pass anything
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                near = self.listener.accept()[0]
                try:
                    far = socket.create_connection(("127.0.0.1", self.port))
                except OSError:  # there is no server
                    near.close()
                    continue
                self.open.add(near)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(near, source, target), daemon=True).start()

    def copy(self, connection, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if connection not in self.frozen:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        source.close()

    def freeze(self):
        """The connections of now pass nothing more, and are not closed; new ones work."""
        self.frozen |= self.open

    def cut(self):
        """Ends the connections of now; new ones work."""
        for connection in list(self.open):
            with contextlib.suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
