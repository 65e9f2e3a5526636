//! The bytes of a connection: TCP, TCP with TLS, or a Unix socket.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use super::options::{Address, Target, Tls};

pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Sets how long a reply is waited for.
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let tcp = match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                return stream.set_write_timeout(Some(timeout));
            }
            Self::Tcp(stream) => stream,
            Self::Tls(session) => session.get_ref(),
        };
        tcp.set_read_timeout(Some(timeout))?;
        tcp.set_write_timeout(Some(timeout))
    }

    /// Connects, and completes the TLS handshake.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        match &target.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                let stream = Self::Unix(stream);
                stream.set_timeout(target.timeout)?;
                Ok(stream)
            }
            Address::Tcp { host, port } => {
                let stream = tcp(host, *port, target)?;
                match &target.tls {
                    None => Ok(Self::Tcp(stream)),
                    Some(tls) => encrypted(stream, host, tls),
                }
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

fn encrypted(mut stream: TcpStream, host: &str, tls: &Tls) -> io::Result<Stream> {
    let name = tls.name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut session =
        ClientConnection::new(Arc::clone(&tls.config), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(session, stream))))
}

impl Read for Stream {
    /// A read with a timeout is not continued by the system after a signal such as Ctrl-C.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => stream.read(buffer),
                Self::Tls(stream) => stream.read(buffer),
                Self::Unix(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}
