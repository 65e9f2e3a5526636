//! A server process that belongs to one test.
//!
//! Its whole configuration is in `redis.conf` of its temporary directory, so a restart starts an
//! equal server. Dropping the value kills the process by its id and removes the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::builder::Builder;
use super::client::{Client, Protocol};
use super::port::free_port;
use super::reply::{Reply, simple};

/// How long a start or a stop may take; loading the largest file of these tests takes seconds.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Pause between two checks of a server that starts or stops.
const POLL: Duration = Duration::from_millis(5);

/// A running server; it is killed on drop.
pub struct Server {
    child: Option<Child>,
    port: u16,
    dir: tempfile::TempDir,
    builder: Builder,
    /// Whether redis.conf is written from the builder before each start.
    writes_config: bool,
}

impl Server {
    /// Starts the described server on a free port. The error is the log of a server that exits.
    pub fn launched(builder: &Builder) -> Result<Server, String> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let mut server = Server {
            child: None,
            port: free_port(),
            dir,
            builder: builder.clone(),
            writes_config: true,
        };
        server.launch()?;
        Ok(server)
    }

    /// Starts a server with the module and the default configuration.
    #[track_caller]
    pub fn start() -> Server {
        Server::with().start()
    }

    /// Starts a server whose persistence file `own` has the given bytes, with more configuration
    /// lines.
    #[track_caller]
    pub fn on_file(own: &str, bytes: &[u8], lines: &[&str]) -> Server {
        let mut server = Server::start();
        server.kill();
        fs::write(server.dir().join(own), bytes).expect("a file that can be written");
        lines.iter().for_each(|line| server.configure(line));
        server.relaunch();
        server
    }

    pub fn with() -> Builder {
        Builder::default()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the server's configuration, log and persistence files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The log since the first start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::try_connect(self.port)
            .unwrap_or_else(|| panic!("cannot connect to port {}; log:\n{}", self.port, self.log()))
    }

    #[track_caller]
    pub fn resp3(&self) -> Client {
        let mut client = self.client();
        let hello = client.run("HELLO 3");
        assert!(matches!(hello, Reply::Map(_)), "HELLO 3 answered {hello:?}");
        client
    }

    #[track_caller]
    pub fn speak(&self, protocol: Protocol) -> Client {
        match protocol {
            Protocol::Resp2 => self.client(),
            Protocol::Resp3 => self.resp3(),
        }
    }

    /// Stops the server with SHUTDOWN SAVE and starts it again.
    #[track_caller]
    pub fn restart(&mut self) {
        let mut client = self.client();
        client.send(&["SHUTDOWN", "SAVE"]);
        if let Ok(refused) = client.try_read() {
            panic!("SHUTDOWN SAVE answered {refused:?}; log:\n{}", self.log());
        }
        self.wait_for_exit();
        self.relaunch();
    }

    /// Kills the server with SIGKILL and starts it again: only data on disk survives.
    #[track_caller]
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.relaunch();
    }

    /// Starts another server as a replica of this one and waits for its full synchronization.
    #[track_caller]
    pub fn replica(&self) -> Server {
        let replica = Server::with().replica_of(self).start();
        let mut client = replica.client();
        let deadline = Instant::now() + START_TIMEOUT;
        while client.server_info("replication", "master_link_status") != "up" {
            assert!(
                Instant::now() < deadline,
                "the replica did not synchronize; its log:\n{}",
                replica.log()
            );
            sleep(POLL);
        }
        replica
    }

    /// Starts the server again after `kill`; panics with its log if it exits.
    #[track_caller]
    pub fn relaunch(&mut self) {
        self.try_relaunch().unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// Starts the server again after `kill`. The error is the log of a server that exits.
    pub fn try_relaunch(&mut self) -> Result<(), String> {
        self.launch()
    }

    /// Adds a line to the configuration file, for the next start.
    pub fn configure(&mut self, line: &str) {
        self.builder = self.builder.clone().config(line);
    }

    /// Starts with the redis.conf that the server itself has rewritten, from the next start on.
    pub fn keep_config(&mut self) {
        self.writes_config = false;
    }

    /// Loads the module from this path, from the next start on.
    pub fn configure_module(&mut self, path: &Path) {
        self.builder = self.builder.clone().module_at(path);
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server was started").id()
    }

    /// Starts the process and waits until it serves. The error is the log of a server that exits.
    fn launch(&mut self) -> Result<(), String> {
        let config = self.dir().join("redis.conf");
        if self.writes_config {
            fs::write(&config, self.builder.text(self.port, self.dir()))
                .expect("redis.conf can be written");
        }
        let log =
            File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        let program = self.builder.program();
        let mut command = match self.builder.preparation() {
            None => Command::new(&program),
            Some(preparation) => {
                let [name, arguments @ ..] = self.builder.shell() else {
                    unreachable!("a shell has a name")
                };
                let mut shell = Command::new(name);
                shell.args(arguments).args([
                    "-c",
                    &format!(r#"{preparation}exec "$@""#),
                    "sh",
                    &program,
                ]);
                shell
            }
        };
        let child = command
            .arg(&config)
            .args(self.builder.arguments())
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("the log file can be shared"))
            .stdout(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        self.child = Some(child);
        self.wait_until_it_serves()?;
        if let Some(clock) = self.builder.own_clock() {
            clock.drives(self.port);
        }
        Ok(())
    }

    fn wait_until_it_serves(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if self.has_exited() {
                self.child = None;
                return Err(self.log());
            }
            // PING fails while the server loads its data, or if the server exits meanwhile.
            if let Some(mut client) = Client::try_connect(self.port)
                && client.try_cmd(&["PING"]).is_ok_and(|reply| reply == simple("PONG"))
            {
                return Ok(());
            }
            sleep(POLL);
        }
        panic!("the server neither serves nor exits; log:\n{}", self.log());
    }

    fn has_exited(&mut self) -> bool {
        let child = self.child.as_mut().expect("the server was started");
        child.try_wait().expect("the child can be waited for").is_some()
    }

    #[track_caller]
    pub fn wait_for_exit(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.has_exited() {
            assert!(Instant::now() < deadline, "the server does not stop; log:\n{}", self.log());
            sleep(POLL);
        }
        self.child = None;
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have exited already: then `kill` fails, and `wait` still reaps it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir().join("server.log")
    }
}

impl Drop for Server {
    /// Kills the server. Under valgrind it must exit by itself, because valgrind reports leaks at
    /// exit.
    fn drop(&mut self) {
        if std::env::var_os("REDIS_BLOOM_MEMCHECK").is_some()
            && self.child.is_some()
            && let Some(mut client) = Client::try_connect(self.port)
        {
            // SHUTDOWN has no reply: it closes the connection.
            let _ = client.try_cmd(&["SHUTDOWN", "NOSAVE"]);
            let deadline = Instant::now() + START_TIMEOUT;
            while !self.has_exited() && Instant::now() < deadline {
                sleep(POLL);
            }
        }
        self.kill();
    }
}
