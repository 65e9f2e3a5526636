//! A clock that a test sets, for servers that [`Builder::clock`](super::builder::Builder::clock)
//! starts.
//!
//! A library of a few lines of C is loaded before the server (LD_PRELOAD) and adds a number of
//! microseconds to each time of day. The number is in a file, which the test writes and the server
//! maps. The module knows nothing of it, so that no released module has such a setting.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::client::Client;
use super::wait::wait_until;

/// Replaces the functions from which servers get the time of day.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead = mapped;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    if (result == 0 && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long us = time->tv_sec * 1000000LL + time->tv_nsec / 1000 + *ahead;
        time->tv_nsec = us % 1000000 * 1000 + time->tv_nsec % 1000;
        time->tv_sec = us / 1000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// A clock of one or more servers, which begins with the right time.
#[derive(Clone)]
pub struct Clock(Arc<Shared>);

struct Shared {
    dir: tempfile::TempDir,
    /// Ports of the servers that were started with this clock.
    ports: Mutex<Vec<u16>>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    pub fn new() -> Clock {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let clock = Clock(Arc::new(Shared { dir, ports: Mutex::default() }));
        clock.set(0);
        clock
    }

    /// Sets how far the clock is ahead of the right time, in milliseconds, and waits until all
    /// running servers that have it show the new time.
    #[track_caller]
    pub fn set(&self, milliseconds: i64) {
        let bytes = (milliseconds * 1_000).to_ne_bytes();
        // In place: servers have mapped the file.
        let file = fs::File::options().create(true).truncate(false).write(true).open(self.file());
        let written = file.and_then(|file| std::os::unix::fs::FileExt::write_at(&file, &bytes, 0));
        assert_eq!(written.expect("the file can be written"), bytes.len());
        for &port in self.0.ports.lock().expect("no test of this clock failed").iter() {
            wait_for_time(port, milliseconds);
        }
    }

    /// Sets the clock by so many milliseconds ahead of where it is, as [`Self::set`] does.
    #[track_caller]
    pub fn advance(&self, milliseconds: i64) {
        let bytes = fs::read(self.file()).expect("the file of the clock");
        let now = i64::from_ne_bytes(bytes.try_into().expect("8 bytes")) / 1_000;
        self.set(now + milliseconds);
    }

    /// Gives a program this clock that is not a server, as the tool.
    pub fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("TEST_CLOCK", self.file());
    }

    fn file(&self) -> PathBuf {
        self.0.dir.path().join("ahead")
    }

    /// Notes a server that was started with this clock.
    pub(super) fn drives(&self, port: u16) {
        self.0.ports.lock().expect("no test of this clock failed").push(port);
    }

    /// Shell words that give a process this clock.
    pub(super) fn environment(&self) -> String {
        let (library, file) = (library().display(), self.file());
        format!("export LD_PRELOAD='{library}' TEST_CLOCK='{}' && ", file.display())
    }
}

/// Waits until a server shows a time that is so many milliseconds ahead, but for 0.2 s. Valkey 9
/// asks for the time of day only between commands, now and then.
#[track_caller]
fn wait_for_time(port: u16, ahead: i64) {
    // A server that was stopped asks when it starts.
    let Some(mut client) = Client::try_connect(port) else { return };
    wait_until("the server shows the time that was set", || {
        let Ok(reply) = client.try_cmd(&["TIME"]) else { return true };
        let [seconds, micros] =
            [0, 1].map(|part| reply.elements()[part].text().parse::<i64>().expect("a number"));
        let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        let real = i64::try_from(real.as_millis()).expect("a time of this age");
        (seconds * 1_000 + micros / 1_000 - real - ahead).abs() < 200
    });
}

/// The compiled library. `cc` is there, because Rust links with it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let source = dir.path().join("clock.c");
        fs::write(&source, SOURCE).expect("a file that can be written");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(dir.path().join("clock.so"))
            .arg(&source)
            .output()
            .expect("cc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        dir
    });
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| dir.path().join("clock.so"))
}
