"""The lines of docs/guide/docker.md and contrib/docker/README.md, each block run as it is, with podman in
the place of docker.

No image comes from a registry. Each image of the page is made here: it has the server of this machine
(REDIS_SERVER) in the places of the official image, and a start script that does what the page says of
that image's. What the page replaces, RedisBloom, is a file that no server can load. In the image of Rust
cargo copies what is built already.

scripts/test-docker runs this in a mount namespace of its own.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/docker.md").read_text()
BUILD_PAGE = (ROOT / "contrib/docker/README.md").read_text()
BLOCK = re.compile(r"^```(sh|dockerfile)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = os.environ["REDIS_BLOOM_SO"]
TOOL = os.environ["REDIS_BLOOM_TOOL"]
# Where the package has the module.
PACKAGED = "/usr/lib/redis/modules/libredis_bloom.so"
USER = 999

# Gives the data directory to the server's user, becomes that user, and loads what is in the directory
# of modules, as the start scripts of the official images do.
START = """#!/bin/sh
set -e
case $1 in -* | *.conf) set -- SERVER "$@" ;; esac
if [ "$1" = SERVER ] && [ "$(id -u)" = 0 ]; then
    chown -R 999 /data
    exec setpriv --reuid 999 --regid 999 --clear-groups "$0" "$@"
fi
for module in /usr/local/lib/redis/modules/*.so; do
    if [ "$1" = SERVER ] && [ -x "$module" ]; then set -- "$@" --loadmodule "$module"; fi
done
exec "$@"
"""
CARGO = """#!/bin/sh
set -e
test -f Cargo.toml && test -f cli/Cargo.toml
case "$*" in
    'build --release --lib --locked') install -D /built/libredis_bloom.so target/release/libredis_bloom.so ;;
    'build --profile cli --package redis-bloom-cli --locked') install -D /built/redis-bloom target/cli/redis-bloom ;;
    *) exit 2 ;;
esac
"""
START_STACK = """#!/bin/sh
exec /opt/redis-stack/bin/redis-server --dir /data --protected-mode no --daemonize no \\
    --loadmodule /opt/redis-stack/lib/redisbloom.so $REDISBLOOM_ARGS
"""


def run(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


class Image:
    """The directory tree of an image."""

    def __init__(self, directory):
        self.root = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self.root.chmod(0o755)
        for name in ("bin", "lib", "lib64"):
            (self.root / "usr" / name).mkdir(parents=True)
            (self.root / name).symlink_to(f"usr/{name}")
        for name in ("data", "tmp", "proc", "sys", "dev", "etc"):
            (self.root / name).mkdir()
        write(self.root / "etc/passwd", f"root:x:0:0::/:/bin/sh\nserver:x:{USER}:{USER}::/data:/bin/sh\n")
        write(self.root / "etc/group", f"root:x:0:\nserver:x:{USER}:\n")

    def add(self, program, path):
        """A program of this machine, with its libraries unless they are there already."""
        self.copy(program, path)
        for library in re.findall(r"(?:=> |^\t)(/\S+)", run("ldd", program).stdout, re.MULTILINE):
            self.copy(library, library)

    def copy(self, file, path):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(os.path.realpath(file), target)

    def add_server(self, path):
        """REDIS_SERVER. Its libraries come first, because a newer libc also runs the other programs."""
        program = shutil.which(os.environ.get("REDIS_SERVER", "redis-server"))
        # scripts/unpack-server makes a script, beside a directory with the server and its libraries.
        unpacked = re.search(r"^ +'(.*)/usr/bin/([^/']*)' ", pathlib.Path(program).read_bytes().decode("latin1"), re.M)
        if not unpacked:
            return self.add(program, path)
        tree, server = unpacked.groups()
        for name in ("lib", "lib64"):
            for origin in (f"{tree}/{name}", f"{tree}/usr/{name}"):
                if os.path.isdir(origin):
                    shutil.copytree(origin, self.root / "usr" / name, symlinks=True, dirs_exist_ok=True)
        self.copy(f"{tree}/usr/bin/{server}", path)

    def import_as(self, name, *changes):
        changes = [word for change in changes for word in ("--change", change)]
        tar = f"{self.root}.tar"
        for command in (["tar", "-C", self.root, "-cf", tar, "."], ["podman", "import", *changes, tar, name]):
            done = run(*command)
            if done.returncode:
                raise RuntimeError(done.stdout)
        os.remove(tar)
        shutil.rmtree(self.root)


def contained(directory):
    """Lets podman keep everything in a directory, and use neither a registry nor a network.

    Control groups and limits above this process's are left out, because a container that runs these
    tests may not set them. Each container has a network of its own.
    """
    files = {
        "CONTAINERS_CONF": '[containers]\ncgroups = "disabled"\nnetns = "none"\n'
        'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\ncgroup_manager = "cgroupfs"\n'
        f'events_logger = "none"\nruntime = "crun"\nlock_type = "file"\ntmp_dir = "{directory}/tmp"\n',
        "CONTAINERS_STORAGE_CONF": f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/images"\n'
        f'runroot = "{directory}/run"\n',
        "CONTAINERS_REGISTRIES_CONF": "unqualified-search-registries = []\n",
    }
    for name, text in files.items():
        os.environ[name] = f"{directory}/{name}"
        write(pathlib.Path(directory, name), text)
    os.environ["BUILDAH_ISOLATION"] = "chroot"  # RUN of a Dockerfile
    # With two hierarchies of control groups mounted at once crun does nothing. Only this namespace changes.
    if os.path.ismount("/sys/fs/cgroup/unified"):
        run("umount", "/sys/fs/cgroup/unified")


def make_images(directory):
    path = "ENV PATH=/usr/local/bin:/usr/bin:/bin"
    for name, server in (
        ("docker.io/library/redis:7.4", "redis-server"),
        ("docker.io/library/redis:8", "redis-server"),
        ("docker.io/valkey/valkey:8.1", "valkey-server"),
        ("docker.io/redis/redis-stack-server:latest", None),
    ):
        image = Image(directory)
        image.add_server(f"/usr/local/bin/{server}" if server else "/opt/redis-stack/bin/redis-server")
        image.add(shutil.which("redis-cli"), "/usr/local/bin/redis-cli")
        image.add(TOOL, "/built/redis-bloom")  # for its libraries
        for program in ("sh", "id", "chown", "setpriv"):
            image.add(shutil.which(program), f"/usr/bin/{program}")
        if server:
            write(image.root / "usr/local/bin/docker-entrypoint.sh", START.replace("SERVER", server), 0o755)
            if name.endswith(":8"):
                write(image.root / "usr/local/lib/redis/modules/redisbloom.so", "not a module", 0o755)
            image.import_as(name, path, "WORKDIR /data", 'ENTRYPOINT ["docker-entrypoint.sh"]', f'CMD ["{server}"]')
        else:
            write(image.root / "entrypoint.sh", START_STACK, 0o755)
            write(image.root / "opt/redis-stack/lib/redisbloom.so", "not a module", 0o755)
            image.import_as(name, path, 'CMD ["/entrypoint.sh"]')
    image = Image(directory)
    for program in ("sh", "install", "rm"):
        image.add(shutil.which(program), f"/usr/bin/{program}")
    for file in (MODULE, TOOL):
        image.copy(file, f"/built/{pathlib.Path(file).name}")
    write(image.root / "usr/bin/apt-get", "#!/bin/sh\n", 0o755)
    write(image.root / "usr/bin/cargo", CARGO, 0o755)
    image.import_as("docker.io/library/rust:1.95-bookworm", path)


@contextlib.contextmanager
def removed_at_the_end():
    """A directory. A process of podman that cleans up behind a container may still write there at the end."""
    directory = tempfile.mkdtemp()
    try:
        yield directory
    finally:
        deadline = time.monotonic() + 60
        while os.path.exists(directory):
            shutil.rmtree(directory, ignore_errors=time.monotonic() < deadline)


def obstacle(directory):
    """Why no container can be run here, or None."""
    image = Image(directory)
    image.add(shutil.which("sh"), "/usr/bin/sh")
    try:
        image.import_as("localhost/shell")
    except RuntimeError as error:
        return str(error).strip()
    tried = run("podman", "run", "--rm", "localhost/shell", "/usr/bin/sh", "-c", "exit 7")
    return None if tried.returncode == 7 else tried.stdout.strip()


class Lines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = DIRECTORY
        make_images(cls.directory)
        # The module of the test is that of the package.
        shim = f"""#!{sys.executable}
import os, sys
words = [word.replace({PACKAGED + ":"!r}, {MODULE + ":"!r}, 1) for word in sys.argv]
os.execvp("podman", words)
"""
        write(pathlib.Path(cls.directory, "bin/docker"), shim, 0o755)
        os.environ["PATH"] = f"{cls.directory}/bin:{os.environ['PATH']}"

    def blocks(self, heading):
        """The shell blocks below a heading; a Dockerfile belongs to the block after it."""
        section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        dockerfile = None
        for kind, text in BLOCK.findall(section):
            if kind == "dockerfile":
                dockerfile = text
            else:
                yield dockerfile, text
                dockerfile = None

    @contextlib.contextmanager
    def container(self, dockerfile, block, path):
        """Runs a block, which starts a container whose server has loaded the module from that path."""
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            if dockerfile:
                write(pathlib.Path(directory, "Dockerfile"), dockerfile)
                shutil.copyfile(MODULE, f"{directory}/libredis_bloom.so")  # not executable
            try:
                # A line that asks the server waits until it listens.
                start, *then = re.split(r"(?=^docker exec )", block, flags=re.MULTILINE)
                self.shell(start, directory)
                self.works(path)
                for line in then:
                    self.shell(line, directory)
                yield
            finally:
                run("podman", "rm", "--force", "--time", "1", "--ignore", "bloom")

    def check(self, heading, path, count):
        """Runs the blocks; the containers survive a restart. Returns what CONFIG REWRITE answered in each."""
        answers = []
        for dockerfile, block in self.blocks(heading):
            with self.subTest(block), self.container(dockerfile, block, path):
                answers.append(self.ask("CONFIG", "REWRITE"))
                self.restart()
                self.works(path)
        self.assertEqual(len(answers), count, "blocks were not found, or failed")
        return answers

    def restart(self):
        done = run("podman", "restart", "--time", "5", "bloom")
        self.assertEqual(done.returncode, 0, done.stdout)

    def shell(self, text, directory):
        done = run("bash", "-euo", "pipefail", "-c", text, cwd=directory)
        self.assertEqual(done.returncode, 0, done.stdout)

    def ask(self, *words):
        return run("podman", "exec", "bloom", "redis-cli", *words).stdout.strip()

    def works(self, path):
        """Waits until the server of the container works; it has loaded the module from that path."""
        deadline = time.monotonic() + 60
        while (answer := self.ask("BF.EXISTS", "urls", "an absent item")) != "0":
            self.assertTrue(self.state("Running") == "true" and time.monotonic() < deadline, f"{answer}\n{self.log()}")
            time.sleep(0.05)
        self.assertIn(path, self.ask("MODULE", "LIST").replace("//", "/").split())
        self.user = os.stat(f"/proc/{self.state('Pid')}").st_uid

    def state(self, field):
        return run("podman", "inspect", "--format", "{{.State.%s}}" % field, "bloom").stdout.strip()

    def log(self):
        return run("podman", "logs", "bloom").stdout

    def test_redis_7_and_valkey(self):
        answers = self.check("Redis 7 and Valkey", PACKAGED, 4)
        self.assertEqual(self.user, USER)
        self.assertEqual([answer == "OK" for answer in answers], [False, False, True, False], answers)

    def test_redis_8(self):
        answers = self.check("Redis 8", "/usr/local/lib/redis/modules/redisbloom.so", 3)
        self.assertEqual(self.user, USER)
        self.assertNotIn("OK", answers)

    def test_a_file_of_redis_8_that_can_be_written_names_the_module_twice(self):
        path = "/usr/local/lib/redis/modules/redisbloom.so"
        (block,) = [text for _, text in self.blocks("Redis 8") if "redis.conf" in text]
        block = block.replace('etc/redis:ro"', 'etc/redis"').replace("docker run", "chown -R 999 conf8\ndocker run")
        with self.container(None, block, path):
            self.assertEqual(self.ask("CONFIG", "REWRITE"), "OK")
            self.restart()
            deadline = time.monotonic() + 60
            while self.state("Running") == "true" and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(self.state("Running"), "false")
            self.assertIn("a module of the name 'bf' is loaded already", self.log())

    def test_redis_stack(self):
        path = "/opt/redis-stack/lib/redisbloom.so"
        self.check("Redis Stack", path, 1)
        ((_, block),) = self.blocks("Redis Stack")
        with self.container(None, block, path):
            self.ask("BF.ADD", "urls", "a")
            self.assertEqual(self.ask("BF.INFO", "urls", "ERROR"), "0.001")

    def test_the_dockerfile_builds_from_the_tree(self):
        blocks = [text for kind, text in BLOCK.findall(BUILD_PAGE) if kind == "sh"]
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            block = block.replace("docker build ", f"cd '{ROOT}'; docker build ")
            with self.subTest(block), self.container(None, block, PACKAGED):
                self.assertEqual(self.ask("EXISTS", "urls"), "1")
                self.assertEqual(self.user, USER)

    def test_a_directory_is_removed_while_a_process_still_writes_there(self):
        write_more = "for at in range(20000): open(f'{sys.argv[1]}/{at}', 'w').close()"
        with removed_at_the_end() as directory:
            images = pathlib.Path(directory, "images")
            images.mkdir()
            # It ends when its directory is gone.
            writer = subprocess.Popen([sys.executable, "-c", f"import sys\n{write_more}", images], stderr=subprocess.DEVNULL)
            while not any(images.iterdir()):
                pass
        self.assertFalse(os.path.exists(directory))
        writer.wait()

    def test_every_block_of_the_page_is_run(self):
        headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
        self.assertEqual(headings, ["Redis 7 and Valkey", "Redis 8", "Redis Stack"])
        self.assertEqual(sum(len(list(self.blocks(heading))) for heading in headings), 8)
        self.assertEqual(len(re.findall(r"^```$", PAGE, re.MULTILINE)), len(BLOCK.findall(PAGE)))


if __name__ == "__main__":
    with removed_at_the_end() as DIRECTORY:
        contained(DIRECTORY)
        why = obstacle(DIRECTORY)
        if why:
            print(f"SKIPPED: the lines of docs/guide/docker.md: podman runs no container here: {why.splitlines()[-1:]}")
        else:
            unittest.main()
