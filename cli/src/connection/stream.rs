//! The bytes of a connection: TCP, TCP with TLS, or a Unix socket.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use super::options::{Address, Target, Tls};
use crate::interrupt;

/// How long the system waits before the program looks for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);
/// How long to wait for commands in flight after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// TCP, TCP with TLS, or a Unix socket.
trait Transport: Read + Write + Send {}

impl<T: Read + Write + Send> Transport for T {}

pub(super) struct Stream {
    transport: Box<dyn Transport>,
    /// How long bytes are waited for.
    pub(super) timeout: Duration,
}

impl Stream {
    /// Connects, and completes the TLS handshake.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        let transport: Box<dyn Transport> = match &target.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(MOMENT))?;
                stream.set_write_timeout(Some(MOMENT))?;
                Box::new(stream)
            }
            Address::Tcp { host, port } => {
                let stream = tcp(host, *port, target)?;
                let socket = stream.try_clone()?;
                let transport: Box<dyn Transport> = match &target.tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(encrypted(stream, host, tls)?),
                };
                socket.set_read_timeout(Some(MOMENT))?;
                socket.set_write_timeout(Some(MOMENT))?;
                transport
            }
        };
        Ok(Self { transport, timeout: target.timeout })
    }

    /// Reads or writes, until it is done or late.
    fn patiently(
        &mut self,
        mut transfer: impl FnMut(&mut dyn Transport) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let (started, mut asked) = (Instant::now(), None);
        loop {
            let error = match transfer(&mut *self.transport) {
                Err(error) => error,
                done => return done,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    asked = asked.or_else(|| interrupt::requested().then(Instant::now));
                    let late = |since: Instant, most| since.elapsed() >= most;
                    if late(started, self.timeout) || asked.is_some_and(|it| late(it, GRACE)) {
                        return Err(error);
                    }
                }
                _ => return Err(error),
            }
        }
    }
}

fn tcp(host: &str, port: u16, target: &Target) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, target.timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(target.timeout))?;
                stream.set_write_timeout(Some(target.timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn encrypted(
    mut stream: TcpStream,
    host: &str,
    tls: &Tls,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = tls.name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut session =
        ClientConnection::new(Arc::clone(&tls.config), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(session, stream))
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patiently(|transport| transport.read(buffer))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(|transport| transport.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}
