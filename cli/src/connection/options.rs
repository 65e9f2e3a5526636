//! The connection options, named as those of redis-cli, and the server that they lead to.

use std::{
    borrow::Cow,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use percent_encoding::percent_decode_str;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::{
    error::Error,
    refusal::{Kind, Refusal},
};

/// Options of the connection, for all subcommands that talk to a server.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Options {
    /// Name or address of the server
    #[arg(short = 'h', long, global = true, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port of the server
    #[arg(short, long, global = true, value_name = "PORT", default_value_t = 6379)]
    port: u16,
    /// Unix socket of the server, instead of host and port
    #[arg(short, long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Server, user, password and database: redis://user:password@host:port/0, rediss://… with TLS
    #[arg(short, long = "uri", global = true, value_name = "URI")]
    uri: Option<String>,
    /// Password. Prefer the environment: other users can see a command line
    #[arg(short = 'a', long = "pass", global = true, value_name = "PASSWORD")]
    #[arg(env = "REDISCLI_AUTH", hide_env_values = true)]
    password: Option<String>,
    /// User of an access control list
    #[arg(long, global = true, value_name = "USER")]
    user: Option<String>,
    /// Asks for the password on the terminal
    #[arg(long, global = true)]
    askpass: bool,
    /// Number of the database
    #[arg(short = 'n', long = "db", global = true, value_name = "NUMBER")]
    database: Option<i64>,
    /// Encrypts the connection
    #[arg(long, global = true)]
    tls: bool,
    /// Name that the server's certificate must have, instead of the host
    #[arg(long, global = true, value_name = "NAME")]
    sni: Option<String>,
    /// Certificates of the authorities to trust, instead of the system's
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Certificate of this client
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of this client
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Seconds to wait for a connection or a reply
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How a connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// The name that the certificate must have, instead of the host.
    pub(super) name: Option<String>,
}

/// A server, and how to log in there.
#[derive(Clone)]
pub(crate) struct Target {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(crate) database: i64,
    /// How long a reply is waited for.
    pub(crate) timeout: Duration,
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            Address::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Address::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

impl Options {
    /// The server that the options lead to. Reads certificates; asks for the password.
    pub(crate) fn target(&self) -> Result<Target, Error> {
        let mut target = Target {
            address: match &self.socket {
                Some(path) => Address::Unix(path.clone()),
                None => Address::Tcp { host: self.host.clone(), port: self.port },
            },
            tls: None,
            user: self.user.clone(),
            // An empty variable is none, as for redis-cli.
            password: self.password.clone().filter(|password| !password.is_empty()),
            database: self.database.unwrap_or(0),
            timeout: Duration::from_secs(self.timeout),
        };
        let mut encrypted = self.tls;
        if let Some(uri) = &self.uri {
            encrypted |= target.set_from(uri, self)?;
        }
        if encrypted {
            target.tls = Some(Tls { config: self.tls_config()?, name: self.sni.clone() });
        }
        if self.askpass {
            let asked = rpassword::prompt_password("Password: ");
            target.password = Some(asked.map_err(Error::file("/dev/tty"))?);
        }
        Ok(target)
    }

    fn tls_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?
            .with_root_certificates(self.authorities()?);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let private = PrivateKeyDer::from_pem_slice(&fs::read(key).map_err(Error::file(key))?)
            .map_err(|error| in_file(key, &error))?;
        let config = builder.with_client_auth_cert(certificates(cert)?, private);
        config.map(Arc::new).map_err(|error| match error {
            // The library calls each certificate the peer's.
            rustls::Error::InvalidCertificate(why) => in_file(cert, &why),
            error => tls_error(error),
        })
    }

    fn authorities(&self) -> Result<RootCertStore, Error> {
        let mut store = RootCertStore::empty();
        match &self.cacert {
            Some(file) => {
                for certificate in certificates(file)? {
                    store.add(certificate).map_err(|error| in_file(file, &error))?;
                }
            }
            // A certificate that cannot be read is one authority less.
            None => {
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(store)
    }
}

impl Target {
    /// Takes from a URI what it names: server, user and password, database. As for redis-cli it
    /// wins over other options. Returns whether the connection is encrypted.
    fn set_from(&mut self, uri: &str, options: &Options) -> Result<bool, Error> {
        // The URI itself may hold a password, so no message shows it.
        let wrong = |what: &str| {
            Error::usage(
                format!("the URI {what}"),
                "Write redis://user:password@host:port/database, rediss:// (TLS) or unix:///path.",
            )
        };
        let url = url::Url::parse(uri).map_err(|error| wrong(&format!("is wrong: {error}")))?;
        let decoded = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(Cow::into_owned).map_err(|_| wrong("has a % escape that is not UTF-8"))
        };
        let encrypted = match url.scheme() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" | "valkey+unix" => {
                self.address = Address::Unix(decoded(url.path())?.into());
                if let Some((_, number)) = url.query_pairs().find(|(name, _)| name == "db") {
                    self.database = number.parse().map_err(|_| wrong("has a wrong database"))?;
                }
                return Ok(false);
            }
            _ => return Err(wrong("has an unknown scheme")),
        };
        if let Some(host) = url.host_str() {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = url.port().unwrap_or(options.port);
            self.address = Address::Tcp { host: decoded(host)?, port };
        }
        // User and password come from the same source: two sources may name two accounts. A word
        // before the @ without a colon is a password, as for redis-cli.
        let name = Some(url.username()).filter(|name| !name.is_empty());
        match (name, url.password()) {
            (None, None) => {}
            (Some(password), None) => {
                (self.user, self.password) = (None, Some(decoded(password)?));
            }
            (name, Some(password)) => {
                self.user = name.map(decoded).transpose()?;
                self.password = Some(decoded(password)?);
            }
        }
        let path = url.path().trim_matches('/');
        if !path.is_empty() {
            self.database = path.parse().map_err(|_| wrong("has a wrong database"))?;
        }
        Ok(encrypted)
    }

    /// The node that an error of a cluster names, `MOVED 1234 host:port` or `ASK …`; `None` for
    /// other errors.
    pub(crate) fn redirected(&self, refusal: &Refusal) -> Option<Self> {
        if !matches!(refusal.kind, Kind::Moved | Kind::Asked) {
            return None;
        }
        let (host, port) = refusal.text.split(' ').nth(2)?.rsplit_once(':')?;
        let port = port.parse().ok()?;
        Some(self.at(host, port))
    }

    /// Whether both have the same address.
    pub(crate) fn same_server(&self, other: &Self) -> bool {
        self.address == other.address
    }

    /// Another node of this server's cluster. An empty host is this server's.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let host = match &self.address {
            Address::Tcp { host: own, .. } if host.is_empty() => own.clone(),
            _ => host.to_owned(),
        };
        Self { address: Address::Tcp { host, port }, ..self.clone() }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = fs::read(file).map_err(Error::file(file))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| in_file(file, &error))?;
    if found.is_empty() {
        return Err(in_file(file, &"no certificate in PEM format"));
    }
    Ok(found)
}

fn in_file(file: &Path, error: &dyn fmt::Display) -> Error {
    Error::usage(
        format!("{}: {error}", file.display()),
        "Name a file with a certificate (X.509 version 3) or a key in PEM format.",
    )
}

fn tls_error(error: rustls::Error) -> Error {
    Error::usage(format!("TLS: {error}"), "Check --cert, --key and --cacert.")
}
