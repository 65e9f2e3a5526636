//! The version of the server that the tests run against, so that they expect only what it supports.
//! It is read once per test binary.

use std::process::Command;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub valkey: bool,
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// Whether this is Redis of at least release `redis`, or Valkey of at least release `valkey`.
    pub fn at_least(self, redis: (u32, u32), valkey: (u32, u32)) -> bool {
        (self.major, self.minor) >= if self.valkey { valkey } else { redis }
    }
}

/// The server program, `REDIS_SERVER` or `redis-server`.
pub fn server_program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// The version of [`server_program`], from its `--version` line: `Redis server v=7.0.15 …`,
/// `Valkey server v=8.1.1 …`, and `Server v=7.2.7 …` of the first Valkey.
pub fn version() -> Version {
    static VERSION: OnceLock<Version> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let program = server_program();
        let output = Command::new(&program).arg("--version").output().unwrap_or_else(|error| {
            panic!(
                "cannot run {program}: {error}; install it with `make setup` or set REDIS_SERVER"
            )
        });
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        parse(&line)
            .unwrap_or_else(|| panic!("{program} --version printed {line:?}, without a version"))
    })
}

fn parse(line: &str) -> Option<Version> {
    let number = line.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
    Some(Version {
        valkey: !line.starts_with("Redis"),
        major: parts.next()??,
        minor: parts.next()??,
    })
}

/// The full name of a configuration parameter of the module: `error-rate` is `bf-error-rate` on
/// Redis 8, where a module chooses its names freely, and `bf.error-rate` on other servers.
pub fn config_name(name: &str) -> String {
    let separator = if !version().valkey && version().major >= 8 { '-' } else { '.' };
    format!("bf{separator}{name}")
}

#[test]
fn the_version_line_of_each_kind_of_server_is_parsed() {
    let redis = parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1");
    assert_eq!(redis, Some(Version { valkey: false, major: 7, minor: 0 }));
    let valkey =
        parse("Valkey server v=8.1.1 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64 build=1");
    assert_eq!(valkey, Some(Version { valkey: true, major: 8, minor: 1 }));
    let first = parse("Server v=7.2.7 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1");
    assert_eq!(first, Some(Version { valkey: true, major: 7, minor: 2 }));
    assert_eq!(parse("command not found"), None);
}
