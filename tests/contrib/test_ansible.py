"""contrib/ansible/redis-bloom.yml on a server of its own, in a temporary directory: it installs, changes nothing
the second time, restarts for a changed setting, and fails where the server did not apply everything.

Run by scripts/test-contrib. REDIS_SERVER and REDIS_BLOOM_SO name server and module.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

PLAYBOOK = pathlib.Path(__file__).parents[2] / "contrib/ansible/redis-bloom.yml"
MODULE = os.environ["REDIS_BLOOM_SO"]
SERVER = os.environ.get("REDIS_SERVER", "redis-server")
# What systemctl restart does. The server of the playbook's user "default off" cannot be asked without a password.
RESTART = """#!/bin/sh
if [ -e {dir}/pid ]; then kill $(cat {dir}/pid); while [ -e {dir}/pid ]; do sleep 0.02; done; fi
echo restarted >>{dir}/restarts
exec {server} {dir}/redis.conf
"""


class Playbook(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        (self.dir / "redis.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.dir}\npidfile {self.dir}/pid\ndaemonize yes\nlogfile {self.dir}/log\n")
        (self.dir / "hosts").write_text(f"[redis]\nlocalhost ansible_connection=local ansible_python_interpreter={sys.executable}\n")
        restart = self.dir / "restart"
        restart.write_text(RESTART.format(dir=self.dir, server=SERVER))
        restart.chmod(0o755)
        # A server that did not start leaves the file behind, and may be ending just now.
        stop = f"pid=$(cat {self.dir}/pid) && kill $pid && while [ -e {self.dir}/pid ] && kill -0 $pid; do sleep 0.02; done"
        self.addCleanup(subprocess.run, ["sh", "-c", stop], check=False, stderr=subprocess.DEVNULL)

    def play(self, missing_key="yes", *options):
        """Runs the playbook. Returns how many tasks changed something, or None if it failed, and its output."""
        values = {
            "library": MODULE, "config": f"{self.dir}/redis.conf", "acl_file": f"{self.dir}/users.acl", "owner": str(os.getuid()),
            "restart": f"{self.dir}/restart", "cli": f"redis-cli -p {self.port}", "ansible_become": False,
            "admin_password": "first secret", "monitor_password": "second secret",
            "settings": {"maxmemory": "1gb", "bf.missing-key-error": missing_key},
        }
        command = [pathlib.Path(sys.executable).with_name("ansible-playbook"), "-i", self.dir / "hosts", PLAYBOOK,
                   "-e", json.dumps(values), *options]
        environment = {**os.environ, "ANSIBLE_HOME": str(self.dir / "ansible"), "ANSIBLE_LOCALHOST_WARNING": "0", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
        recap = re.search(r"ok=\d+ +changed=(\d+) +unreachable=0 +failed=0", done.stdout)
        self.assertEqual(done.returncode == 0, bool(recap), done.stdout)
        self.assertNotIn("secret", re.sub(r"--user admin", "", done.stdout))
        return int(recap[1]) if recap else None, done.stdout

    def cli(self, user, password, *words):
        command = ["redis-cli", "-p", str(self.port), "--user", user, "--pass", password, "--no-auth-warning", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def restarts(self):
        return (self.dir / "restarts").read_text().count("restarted")

    def test_a_server_gets_the_module_users_and_settings_once(self):
        changed, output = self.play()
        self.assertGreaterEqual(changed or 0, 4, output)
        admin = ("admin", "first secret")
        self.assertIn(MODULE, self.cli(*admin, "MODULE", "LIST"))
        self.assertEqual(self.cli(*admin, "CONFIG", "GET", "bf.missing-key-error").split(), ["bf.missing-key-error", "yes"])
        self.assertIn("bf_filters:0", self.cli("monitor", "second secret", "INFO", "modules"))
        self.assertIn("NOPERM", self.cli("monitor", "second secret", "BF.ADD", "urls", "a"))
        self.assertIn("NOAUTH", subprocess.run(["redis-cli", "-p", str(self.port), "PING"], capture_output=True, text=True, check=False).stdout)
        self.assertEqual((self.dir / "users.acl").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.restarts(), 1)

        self.assertEqual(self.play()[0], 0)
        # The server writes the lines in a form of its own.
        self.assertEqual(self.cli(*admin, "CONFIG", "REWRITE"), "OK")
        self.assertEqual(self.cli(*admin, "ACL", "SAVE"), "OK")
        self.assertGreater(self.play()[0], 0)
        self.assertEqual((self.dir / "redis.conf").read_text().count("libredis_bloom.so"), 1)
        restarts = self.restarts()

        self.assertEqual(self.play("no")[0], 2)
        self.assertEqual(self.restarts(), restarts + 1)
        self.assertEqual(self.cli(*admin, "CONFIG", "GET", "bf.missing-key-error").split(), ["bf.missing-key-error", "no"])
        self.assertEqual(self.play("no", "--check")[0], 0)

    def test_it_stops_at_a_server_that_does_not_start(self):
        changed, output = self.play("perhaps", "-e", '{"seconds": 1}')
        self.assertIsNone(changed, output)


if __name__ == "__main__":
    unittest.main()
