"""Provokes each incident of docs/guide/incidents.md, and cures it with the commands of the page.

A test makes an incident happen and passes what its clients saw to `cure`. That checks that each line under "Sign" was
seen, that the incident is not over by the commands of "Over", runs those of "First" and "Cure", and waits until it
is over. The commands run in bash. Functions stand for systemctl, and give redis-cli the port of a server; Debian's
paths become those of a directory.

REDIS_SERVER, REDIS_BLOOM_SO and REDIS_BLOOM_TOOL name server, module and tool.
"""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from cluster import MODULE, SERVER, free_ports, wait_until
from exporter import FILES

PAGE = (pathlib.Path(__file__).parents[2] / "docs/guide/incidents.md").read_text()
TOOL = pathlib.Path(os.environ["REDIS_BLOOM_TOOL"]).resolve()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# HERE is the server that the commands are for. systemctl waits as systemd does.
SHELL = r"""
set -uo pipefail
redis-cli() {
    local port=$HERE
    if [ "${1:-}" = -h ]; then port=${!2}; shift 2; fi
    command timeout 5 redis-cli -e -p "$port" "$@" # a hung server does not answer
}
redis-bloom() { "$TOOL" -p "$HERE" "$@"; }
timeout() { "${@:2}"; }
install() { command install -m "$6" "${@:7}"; } # the user redis is not on every machine
systemctl() {
    local pid
    pid=$(cat "$DIR/pid" 2>/dev/null) || pid=
    case $1 in
        stop) [ -z "$pid" ] || kill "$pid" 2>/dev/null || true ;;
        kill) [ -z "$pid" ] || kill "-$3" "$pid" 2>/dev/null || true ;;
        start) "$SERVER" "$DIR/redis.conf"; until command redis-cli -p "$HERE" PING 2>/dev/null | grep -q PONG; do sleep 0.02; done; return ;;
    esac
    while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    rm -f "$DIR/pid"
}
"""


class Node:
    """A server as Debian's service runs it, in a directory of its own."""

    def __init__(self, *lines, module=True, prefix=()):
        self.temporary = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.temporary.name)
        (self.dir / "backups").mkdir()
        (self.port,) = free_ports(1)
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.dir}", f"pidfile {self.dir}/pid", "daemonize yes",
                 f"logfile {self.dir}/log", "save 3600 1", "repl-diskless-sync-delay 0", *lines]
        if module:
            lines.append(f"loadmodule {MODULE}")
        (self.dir / "redis.conf").write_text("\n".join(lines) + "\n")
        subprocess.run([*prefix, SERVER, self.dir / "redis.conf"], check=True)
        wait_until("the server answers", lambda: self.cli("PING") == "PONG")

    def cli(self, *words, user=()):
        """What redis-cli shows, an error too."""
        command = ["redis-cli", *user, "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.replace("\r", "").strip()

    def log(self):
        return (self.dir / "log").read_text()

    def pid(self):
        return int((self.dir / "pid").read_text())

    def bash(self, commands, **hosts):
        """Runs commands of the page on this server; `hosts` are the servers that it names."""
        for name, node in hosts.items():
            commands = commands.replace(f"{name} 6379", f"127.0.0.1 {node.port}")
        for path, own in [("/var/log/redis/redis-server.log", "log"), ("/usr/lib/redis/modules/libredis_bloom.so", MODULE),
                          ("/var/backups", "backups"), ("/var/lib/redis", ""), ("/etc/redis", "")]:
            commands = commands.replace(path, str(self.dir / own))
        ports = {name: str(node.port) for name, node in hosts.items()}
        environment = {**os.environ, **ports, "HERE": str(self.port), "DIR": str(self.dir), "SERVER": SERVER, "TOOL": str(TOOL)}
        return subprocess.run(["bash", "-c", SHELL + commands], env=environment, cwd=Incidents.directory.name,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)

    def kill(self):
        self.bash("systemctl kill -s KILL redis-server")

    def start_in_vain(self, *options):
        """Starts a server that ends itself; the log says why."""
        command = [SERVER, self.dir / "redis.conf", "--daemonize", "no", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=60)

    def close(self):
        self.kill()
        self.temporary.cleanup()


def matches(shown, text):
    """Whether `text` has what the page shows of a line, where `...` is anything."""
    return re.search(".*".join(re.escape(part.strip()) for part in shown.split("...")), text) is not None


class Section:
    def __init__(self, heading):
        (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        parts = dict(zip(*[iter(re.split(r"^\*\*(\w+)\*\*", text, flags=re.MULTILINE)[1:])] * 2))
        assert list(parts) == ["Sign", "First", "Cure", "Over"], heading
        self.signs = "".join(self.blocks(parts["Sign"], "text")).splitlines()
        (self.first,) = self.blocks(parts["First"], "sh")
        self.cures = self.blocks(parts["Cure"], "sh")
        (over,) = self.blocks(parts["Over"], "console")
        self.over = [step.split("\n", 1) for step in re.split(r"^\$ ", over, flags=re.MULTILINE)[1:]]

    @staticmethod
    def blocks(text, language):
        return [block for name, block in BLOCK.findall(text) if name == language]

    def is_over(self, node, **hosts):
        """Whether each command of "Over" prints what the page shows."""
        for command, shown in self.over:
            done = node.bash(command, **hosts)
            if done.returncode or not all(matches(line, done.stdout) for line in shown.splitlines()):
                return False
        return True


class Incidents(unittest.TestCase):
    directory = tempfile.TemporaryDirectory()  # where an operator runs the commands

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def node(self, *lines, **options):
        node = Node(*lines, **options)
        self.addCleanup(node.close)
        return node

    def replica(self, primary, *lines, **options):
        replica = self.node(f"replicaof 127.0.0.1 {primary.port}", *lines, **options)
        self.wait_for_link(replica)
        return replica

    def wait_for_link(self, replica):
        wait_until("the replica is in sync", lambda: "master_link_status:up" in replica.cli("INFO", "replication"))

    def cure(self, heading, node, told="", cures=None, **hosts):
        """Cures what `told` and the log of `node` say. `cures` has a server for each block of commands."""
        section = Section(heading)
        text = told + "\n" + node.log()
        for sign in section.signs:
            # Valkey says "primary".
            self.assertTrue(matches(sign, text.replace("its primary", "its master")), f"{heading}: {sign}: {text}")
        self.assertFalse(section.is_over(node, **hosts), heading)
        self.assertTrue(node.bash(section.first, **hosts).stdout or heading == "A hung server", f"{heading}: {section.first}")
        for block, at in zip(section.cures, cures or [node] * len(section.cures), strict=True):
            if at:
                done = at.bash("set -e\n" + block, **hosts)
                self.assertEqual(done.returncode, 0, f"{heading}: {block}{done.stdout}")
        wait_until(f"{heading} is over", lambda: section.is_over(node, **hosts))

    def items(self, count):
        """Writes the file that the page calls items.txt."""
        items = [f"https://example.com/{number}" for number in range(count)]
        pathlib.Path(self.directory.name, "items.txt").write_text("".join(f"{item}\n" for item in items))
        return items

    def test_out_of_memory(self):
        node = self.node()
        node.cli("BF.ADD", "urls", "a")
        node.cli("CONFIG", "SET", "maxmemory", "1mb")
        self.cure("Out of memory", node, node.cli("BF.ADD", "urls", "b"))

    def test_a_filter_that_cannot_grow(self):
        node = self.node("bf.max-filter-bytes 10kb")
        node.cli("BF.RESERVE", "urls", "0.000001", "1000")
        told = node.cli("BF.MADD", "urls", *map(str, range(20_000)))
        self.cure("A filter cannot grow", node, told)

    def test_a_full_filter(self):
        node = self.node()
        items = self.items(200)
        node.cli("BF.RESERVE", "urls", "0.000001", "100", "NONSCALING")
        self.cure("A filter is full", node, node.cli("BF.MADD", "urls", *items))

    def test_a_lost_filter(self):
        node = self.node("bf.missing-key-error yes")
        self.items(200)
        self.cure("A filter is lost", node, node.cli("BF.EXISTS", "urls", "a"))

    def test_a_stale_filter(self):
        node = self.node()
        items = self.items(200)
        node.cli("BF.MADD", "urls", *items[:100])
        node.cli("SAVE")
        node.cli("BF.MADD", "urls", *items[100:])
        node.kill()
        node.bash("systemctl start redis-server")
        self.cure("A filter is stale", node)

    def test_a_lost_shard(self):
        node = self.node()
        self.items(200)
        node.bash("redis-bloom create urls --items 1000 --error 0.1% --shards 2 --poll 1 && redis-bloom load urls items.txt")
        node.cli("UNLINK", node.cli("HGET", "urls", "1"))
        self.cure("A shard is lost", node, node.bash("redis-bloom info urls").stdout)

    def without_memory(self):
        """A primary with a filter, and a replica that has no memory for it."""
        primary = self.node("bf.max-filter-bytes 8gb")
        primary.cli("BF.RESERVE", "urls", "0.01", "450000000")  # 600 MB
        primary.cli("BF.ADD", "urls", "a")
        return primary, self.replica(primary, prefix=["prlimit", f"--as={512 << 20}:unlimited"])

    def test_a_copy_without_memory(self):
        primary, replica = self.without_memory()
        self.cure("A change was not applied", replica, replica.cli("BF.EXISTS", "urls", "a"), PRIMARY=primary)

    def test_a_copy_without_memory_is_promoted(self):
        old, node = self.without_memory()
        node.cli("REPLICAOF", "NO", "ONE")
        subprocess.run(["prlimit", f"--pid={node.pid()}", "--as=unlimited"], check=True)
        move = f'"$TOOL" -p {old.port} dump urls -o - | redis-bloom restore - urls'
        self.assertIn("BUSYKEY", node.bash(move).stdout)
        done = node.bash(f"{move} --replace")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(node.cli("BF.EXISTS", "urls", "a"), "1")

    def test_a_node_without_the_module(self):
        primary = self.node()
        replica = self.replica(primary, module=False)
        primary.cli("BF.INSERT", "urls", "ITEMS", "a")
        wait_until("the replica has refused it", lambda: "== CRITICAL ==" in replica.log())
        replica.kill()
        (replica.dir / "dump.rdb").unlink()  # with it, it would ask for the newest changes only
        replica.start_in_vain()
        self.cure("A node without the module", replica, PRIMARY=primary)

    def test_users_after_a_failover(self):
        for users in ("redis.conf", "users.acl"):
            with self.subTest(users):
                old = self.node()
                if users == "users.acl":
                    old.kill()
                    (old.dir / users).write_text("")
                    with open(old.dir / "redis.conf", "a", encoding="utf-8") as config:
                        config.write(f"aclfile {old.dir / users}\n")
                    old.bash("systemctl start redis-server")
                old.cli("ACL", "SETUSER", "reader", "on", ">password", "resetkeys", "%R~urls*", "-@all", "+ping", "+bf.exists")
                old.cli(*(["ACL", "SAVE"] if users == "users.acl" else ["CONFIG", "REWRITE"]))
                old.cli("BF.ADD", "urls", "a")
                # Sentinel writes its own users into its file, with no password.
                (old.dir / "sentinel.conf").write_text("user sentinels on nopass ~* &* +@all\n")
                new = self.replica(old)
                old.kill()
                new.cli("REPLICAOF", "NO", "ONE")
                reader = ["--user", "reader", "--pass", "password", "--no-auth-warning"]
                told = subprocess.run(["redis-cli", "-p", str(new.port), *reader, "PING"], capture_output=True, text=True, check=False)
                self.cure("After a failover", new, told.stderr + told.stdout, cures=[old, new])
                self.assertEqual(new.cli("BF.EXISTS", "urls", "a", user=reader), "1")
                self.assertNotIn("sentinels", new.cli("ACL", "USERS"))

    def damage(self, node):
        """Damages the files of a killed server in each way that the page names; it then does not start."""
        rdb, (aof,) = node.dir / "dump.rdb", (node.dir / "appendonlydir").glob("*.incr.aof")
        whole, commands = rdb.read_bytes(), aof.read_bytes()
        packed = whole.index(b"words") + 10  # the first byte of a compressed string, after its lengths
        for damaged in (whole[:len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]),
                        whole[:packed] + b"\xff" * 4 + whole[packed + 4:]):
            rdb.write_bytes(damaged)
            node.start_in_vain("--appendonly", "no")
        aof.write_bytes(commands[:30] + b"XXXX" + commands[34:])
        node.start_in_vain()

    def filled(self):
        """A server with both kinds of files, a backup as docs/guide/operations.md makes it, and no process."""
        node = self.node("appendonly yes")
        node.cli("BF.RESERVE", "urls", "0.01", "100000")
        node.cli("BF.MADD", "urls", *self.items(20_000))
        node.cli("SET", "words", "a" * 10_000)
        node.cli("SAVE")
        (node.dir / "backups" / "redis.rdb").write_bytes((node.dir / "dump.rdb").read_bytes())
        return node

    def test_damaged_files(self):
        node = self.filled()
        node.kill()
        self.damage(node)
        self.cure("Damaged files", node)
        self.assertTrue(Section("A filter is stale").is_over(node), "the backup has all items")
        self.assertIn("aof_enabled:1", node.cli("INFO", "persistence"))
        self.assertIn("\nappendonly yes\n", (node.dir / "redis.conf").read_text())

    def test_a_hung_server(self):
        told = ""  # of the script: a stopped process tells nothing
        for hang in ("script", "stopped"):
            with self.subTest(hang):
                node = self.node("busy-reply-threshold 50", "appendonly yes", "appendfsync always")
                node.cli("BF.ADD", "urls", "a")
                if hang == "script":
                    script = subprocess.Popen(["redis-cli", "-p", str(node.port), "EVAL", "while true do end", "0"],
                                              stdout=subprocess.DEVNULL)
                    self.addCleanup(script.wait)
                    self.addCleanup(script.kill)
                    wait_until("it is busy", lambda: "BUSY" in node.cli("PING"))
                    told = node.cli("PING")
                else:
                    os.kill(node.pid(), signal.SIGSTOP)
                self.cure("A hung server", node, told, cures=[node, None] if hang == "script" else [None, node])
                self.assertEqual(node.cli("BF.EXISTS", "urls", "a"), "1")

    def test_a_replica_is_promoted(self):
        for primary_is in ("hung", "damaged"):
            with self.subTest(primary_is):
                primary = self.filled()
                replica = self.replica(primary)
                if primary_is == "hung":
                    os.kill(primary.pid(), signal.SIGSTOP)
                else:
                    primary.kill()
                    self.damage(primary)
                self.cure("Promote a replica", primary, REPLICA=replica)
                self.assertTrue(Section("A filter is stale").is_over(primary), "it has all items")

    def test_each_incident_of_the_page_has_a_test(self):
        tested = re.findall(r'self\.cure\("(.*?)"', pathlib.Path(__file__).read_text())
        self.assertEqual(sorted(tested), sorted(re.findall("^## (.*)$", PAGE, re.MULTILINE)))

    def test_the_alerts_of_the_page_exist(self):
        alerts = re.findall(r"alert: (\w+)", (FILES / "alerts.yml").read_text())
        self.assertLessEqual(set(re.findall(r"`(Bloom\w+)`", PAGE)), set(alerts))


if __name__ == "__main__":
    unittest.main()
