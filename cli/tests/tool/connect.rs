//! Connection options: addresses, URIs, users, TLS.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::{
    harness::{Cluster, Server, free_port, int, ok, skipped},
    run::{Ran, command, command_at, run_at},
    terminal::in_terminal,
};

/// Runs the tool with these words alone.
fn run(words: &[&str]) -> Ran {
    command().args(words).output().expect("the tool runs").into()
}

/// `info` shows the filter `urls`.
#[track_caller]
fn connects(words: &[&str]) {
    let ran = run(&[words, &["info", "urls"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words:?}");
}

/// The tool ends with exit code 3, and shows no password.
#[track_caller]
fn cannot_connect(words: &[&str]) -> String {
    let ran = run(&[words, &["info", "urls"]].concat());
    assert_eq!(ran.code, 3, "{words:?}: {ran:?}");
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    ran.stderr
}

#[test]
fn a_server_is_reached_by_address_uri_and_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("a socket");
    let server = Server::with().config(&format!("unixsocket \"{}\"", socket.display())).start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("SELECT 3");
    client.run("BF.RESERVE third 0.01 1000");

    let port = server.port().to_string();
    let socket = socket.display().to_string();
    connects(&["-p", &port]);
    connects(&["-h", "localhost", "-p", &port]);
    connects(&["-s", &socket]);
    connects(&["-u", &format!("redis://127.0.0.1:{port}")]);
    connects(&["-u", &format!("valkey://127.0.0.1:{port}/0")]);
    connects(&["-u", "redis://127.0.0.1", "-p", &port]);
    connects(&["-u", &format!("unix://{}", socket.replace(' ', "%20"))]);

    for words in [
        ["-u".to_owned(), format!("redis://127.0.0.1:{port}/3")],
        ["-u".to_owned(), format!("unix://{}?db=3", socket.replace(' ', "%20"))],
    ] {
        let ran: Ran = command().args(&words).args(["info", "third"]).output().unwrap().into();
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
    }
    assert_eq!(run_at(&server, "-n 3 drop third").code, 0);
    assert_eq!(client.run("EXISTS third"), int(0));
}

#[test]
fn a_server_that_is_not_there_is_no_connection() {
    let port = free_port().to_string();
    cannot_connect(&["-p", &port]);
    cannot_connect(&["-s", "/nonexistent/socket"]);
    cannot_connect(&["-h", "name.invalid"]);
}

#[test]
fn a_wrong_uri_is_wrong_usage_and_its_password_is_not_shown() {
    for uri in
        ["http://:secret@127.0.0.1/", "redis://:secret@127.0.0.1/x", "redis://:secret@:x", "secret"]
    {
        let ran = run(&["-u", uri, "drop", "urls"]);
        assert_eq!(ran.code, 2, "{uri}: {ran:?}");
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}

#[test]
fn users_and_passwords_are_sent_from_options_environment_and_uri() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("ACL SETUSER reader on >secret%/1 ~urls +type +bf.info +client|setname +select");
    client.run("CONFIG SET requirepass secret0");

    let port = &server.port().to_string();
    connects(&["-p", port, "-a", "secret0"]);
    connects(&["-p", port, "--user", "reader", "--pass", "secret%/1"]);
    connects(&["-u", &format!("redis://:secret0@127.0.0.1:{port}")]);
    connects(&["-u", &format!("redis://reader:secret%25%2F1@127.0.0.1:{port}")]);
    let ran: Ran = command()
        .env("REDISCLI_AUTH", "secret0")
        .args(["-p", port, "info", "urls"])
        .output()
        .expect("the tool runs")
        .into();
    ran.done();

    // A word without a colon is a password. The URI wins, with its user and its password.
    let uri = &format!("redis://secret0@127.0.0.1:{port}");
    connects(&["-u", uri, "-h", "name.invalid"]);
    connects(&["-u", uri, "--user", "nobody", "-a", "secret1"]);
    connects(&["-u", &format!("redis://127.0.0.1:{port}"), "-a", "secret0"]);
    let ran: Ran = command()
        .env("REDISCLI_AUTH", "")
        .args(["-u", &format!("redis://:secret0@127.0.0.1:{port}")])
        .args(["info", "urls"])
        .output()
        .expect("the tool runs")
        .into();
    ran.done();

    cannot_connect(&["-p", port]);
    cannot_connect(&["-p", port, "-a", "secret1"]);
    cannot_connect(&["-p", port, "--user", "nobody", "-a", "secret0"]);
    // The user may not remove the key.
    let ran = run(&["-p", port, "--user", "reader", "-a", "secret%/1", "drop", "urls"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("NOPERM"), "{}", ran.stderr);
    assert_eq!(client.run("EXISTS urls"), int(1));
}

#[test]
fn a_password_is_asked_for_on_the_terminal_and_not_shown() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("CONFIG SET requirepass secret0");
    let asking = command_at(&server, "--askpass info urls");
    for (password, expected) in [("secret0", 0), ("secret1", 3)] {
        let mut terminal = in_terminal(&asking, 24, 100);
        terminal.wait_for("Password:");
        terminal.wait_for_silence();
        terminal.press(&format!("{password}\n"));
        let (code, seen) = terminal.end();
        assert_eq!(code, expected, "{seen:?}");
        assert!(!seen.contains(password), "{seen:?}");
    }
}

/// An authority, and certificates of it, in files.
struct Certificates {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new(dir: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        fs::write(dir.join("ca.pem"), issuer.pem()).expect("a file");
        Self { issuer }
    }

    /// Writes `<name>.pem` and `<name>.key` for a host.
    fn write(&self, dir: &Path, name: &str, host: &str) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}

/// A server that speaks TLS on the second of its ports, with the filter `urls`. Skips `test` if the
/// server was built without TLS.
pub(crate) fn tls_server(
    test: &str,
    dir: &Path,
    host: &str,
    lines: &[&str],
) -> Option<(Server, String)> {
    let certificates = Certificates::new(dir);
    certificates.write(dir, "server", host);
    certificates.write(dir, "client", "client");
    let port = free_port();
    let mut builder = Server::with().config(&format!("tls-port {port}"));
    for (setting, file) in
        [("cert-file", "server.pem"), ("key-file", "server.key"), ("ca-cert-file", "ca.pem")]
    {
        let line = format!("tls-{setting} \"{}\"", dir.join(file).display());
        builder = builder.config(&line);
    }
    for line in lines {
        builder = builder.config(line);
    }
    let server = match builder.try_start() {
        Err(log) if log.contains("Failed finding TLS support") => {
            skipped(test, "this server was built without TLS");
            return None;
        }
        started => started.unwrap_or_else(|log| panic!("the server did not start:\n{log}")),
    };
    server.client().run("BF.RESERVE urls 0.01 1000");
    Some((server, port.to_string()))
}

#[test]
fn a_server_with_tls_is_trusted_by_its_authority() {
    let dir = tempfile::tempdir().expect("a directory");
    let test = "a_server_with_tls_is_trusted_by_its_authority";
    let lines = ["tls-auth-clients no"];
    let Some((server, port)) = tls_server(test, dir.path(), "localhost", &lines) else {
        return;
    };
    let ca = &dir.path().join("ca.pem").display().to_string();

    connects(&["--tls", "-h", "localhost", "-p", &port, "--cacert", ca]);
    connects(&["-u", &format!("rediss://localhost:{port}"), "--cacert", ca]);
    connects(&["--tls", "-p", &port, "--sni", "localhost", "--cacert", ca]);
    // Not among the system's authorities; not the name that was asked for; no TLS.
    cannot_connect(&["--tls", "-h", "localhost", "-p", &port]);
    cannot_connect(&["--tls", "-p", &port, "--cacert", ca]);
    cannot_connect(&["--tls", "-p", &port, "--sni", "other", "--cacert", ca]);
    cannot_connect(&["-p", &port, "--timeout", "5"]);
    cannot_connect(&["--tls", "-p", &server.port().to_string(), "--cacert", ca, "--timeout", "5"]);
    let none = &dir.path().join("none.pem").display().to_string();
    assert_eq!(run(&["--tls", "--cacert", none, "drop", "urls"]).code, 2);
    let key = &dir.path().join("client.key").display().to_string();
    assert_eq!(run(&["--tls", "--cacert", key, "drop", "urls"]).code, 2);
}

#[test]
fn a_client_shows_its_certificate() {
    let dir = tempfile::tempdir().expect("a directory");
    let (test, lines) = ("a_client_shows_its_certificate", ["tls-auth-clients yes"]);
    let Some((_server, port)) = tls_server(test, dir.path(), "127.0.0.1", &lines) else {
        return;
    };
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (ca, cert, key) = (&file("ca.pem"), &file("client.pem"), &file("client.key"));

    connects(&["--tls", "-p", &port, "--cacert", ca, "--cert", cert, "--key", key]);
    cannot_connect(&["--tls", "-p", &port, "--cacert", ca]);
    assert_eq!(run(&["--tls", "--cert", cert, "drop", "urls"]).code, 2);
    assert_eq!(run(&["--tls", "--cert", key, "--key", key, "drop", "urls"]).code, 2);
}

/// A certificate of X.509 version 1, as `openssl x509 -req` without extensions issues it.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBHzCBxQIUCuhzTY9dvdDXU9oPMHyUZHOSuN8wCgYIKoZIzj0EAwIwETEPMA0G
A1UEAwwGY2xpZW50MCAXDTI2MTEyMzE3MTYyMloYDzIxMjYxMDMwMTcxNjIyWjAR
MQ8wDQYDVQQDDAZjbGllbnQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQh25oI
7U0y/Z8/h0d2SG7qwmJHkZKyjbjGlLXTaAaVF6r3bkGQwn1DpdUBjhRmCiGW06k2
QYmI5BeFmzDs1falMAoGCCqGSM49BAMCA0kAMEYCIQDv165p5SoJM8MLeMgdwVfl
XRCKsKVv5kw+jX3WZ6y4GAIhANd//7u2wdpI7AFZubNqffWGGcfbfdunxWeNF6hz
wlh7
-----END CERTIFICATE-----
";

/// What is wrong with the client's own certificate is no fault of the server.
#[test]
fn a_certificate_of_an_old_version_is_called_the_clients() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (cert, key) = (file("old.pem"), file("old.key"));
    fs::write(&cert, VERSION_1).expect("a file");
    fs::write(&key, KeyPair::generate().expect("a key").serialize_pem()).expect("a file");
    let ran = run(&["--tls", "--cert", &cert, "--key", &key, "drop", "urls"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let says = format!("redis-bloom: {cert}: ");
    assert!(ran.stderr.starts_with(&says) && ran.stderr.contains("version 3"), "{ran:?}");
    assert!(!ran.stderr.contains("peer"), "{ran:?}");
}

#[test]
fn a_node_of_a_cluster_leads_to_the_node_that_has_the_key() {
    let cluster = Cluster::start();
    let mut client = cluster.client();
    for key in ["urls", "users", "a", "b", "c"] {
        assert_eq!(client.call(key, &["BF.RESERVE", key, "0.01", "1000"]), ok());
        // Any node will do, replicas included.
        for node in &cluster.nodes {
            assert_eq!(run_at(node, &format!("info {key}")).code, 0, "{key}");
        }
        assert_eq!(run_at(&cluster.nodes[0], &format!("drop {key}")).code, 0, "{key}");
        assert_eq!(client.call(key, &["EXISTS", key]), int(0));
    }
}
