"""A cluster of three primaries with a replica each, on this machine, with the module on every node."""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

NODES = 6
SERVER = os.environ.get("REDIS_SERVER") or "redis-server"
MODULE = pathlib.Path(os.environ["REDIS_BLOOM_SO"]).resolve()
READY = "Ready to accept connections"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_until(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.05)


class Cluster:
    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        self.ports = free_ports(NODES)
        self.processes = {}
        try:
            for port, bus in zip(self.ports, free_ports(NODES)):
                self._start(port, bus)
            wait_until("the nodes are up", lambda: all(READY in self._log(port) for port in self.ports))
            self._join()
        except BaseException:
            self.stop()
            raise

    def _start(self, port, bus):
        directory = pathlib.Path(self.dir.name) / str(port)
        directory.mkdir()
        with open(directory / "log", "w", encoding="utf-8") as log:
            self.processes[port] = subprocess.Popen(
                [SERVER, "--bind", "127.0.0.1", "--port", str(port), "--dir", directory, "--save", "", "--daemonize",
                 "no", "--loadmodule", MODULE, "--cluster-enabled", "yes", "--cluster-port", str(bus),
                 "--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0"],
                stdout=log, stderr=log,
            )

    def _log(self, port):
        return (pathlib.Path(self.dir.name) / str(port) / "log").read_text()

    def _join(self):
        nodes = [f"127.0.0.1:{port}" for port in self.ports]
        create = ["redis-cli", "--cluster", "create", *nodes, "--cluster-replicas", "1", "--cluster-yes"]
        done = subprocess.run(create, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        wait_until("three replicas are linked", lambda: [
            "role:slave" in link and "master_link_status:up" in link for link in map(self.replication, self.ports)
        ].count(True) == NODES // 2)
        wait_until("the cluster is up", lambda: all(
            "cluster_state:ok" in self.on(port, "CLUSTER", "INFO") for port in self.ports))

    def replication(self, port):
        return self.on(port, "INFO", "replication")

    def primaries(self):
        return [port for port in self.ports if self.is_alive(port) and "role:master" in self.replication(port)]

    def is_alive(self, port):
        return self.processes[port].poll() is None

    def on(self, port, *words):
        """The reply of one node."""
        command = ["redis-cli", "-p", str(port), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def call(self, *words):
        """The reply of the node that has the key."""
        alive = next(port for port in self.ports if self.is_alive(port))
        command = ["redis-cli", "-e", "-c", "-p", str(alive), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def is_in_step(self, port):
        """Whether a replica of this primary has all that it wrote."""
        info = self.replication(port)
        end = re.search(r"master_repl_offset:(\d+)", info)[1]
        return f"state=online,offset={end}," in info

    def kill(self, port):
        self.processes[port].kill()
        self.processes[port].wait()

    def stop(self):
        for port in self.processes:
            self.kill(port)
        self.dir.cleanup()
