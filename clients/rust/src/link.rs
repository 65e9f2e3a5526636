//! Connections that are replaced after an error, blocking ones and those of tokio, behind one
//! trait.
//!
//! The logic of this crate is asynchronous, and written once. A blocking link answers at once, so
//! [`now`] runs the same logic without an executor.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Client, Cmd, Connection, FromRedisValue, IntoConnectionInfo, RedisResult, Value, cmd};

/// What can go wrong: the server, or the database behind `catch_up` and `build`.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where the filters are: a server (`&redis::Client`), or a cluster.
#[derive(Clone)]
pub enum Servers {
    /// One server, on its own or with replicas.
    One(Client),
    /// A cluster, by some of its nodes.
    Cluster(Vec<redis::ConnectionInfo>),
}

impl From<&Client> for Servers {
    fn from(client: &Client) -> Self {
        Servers::One(client.clone())
    }
}

impl Servers {
    /// A cluster, by the URLs of some of its nodes.
    pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> RedisResult<Self> {
        let nodes = nodes.into_iter().map(T::into_connection_info).collect::<RedisResult<_>>()?;
        Ok(Servers::Cluster(nodes))
    }

    fn of_nodes(
        nodes: &[redis::ConnectionInfo],
        timeout: Duration,
        retries: u32,
    ) -> RedisResult<ClusterClient> {
        ClusterClient::builder(nodes.iter().cloned())
            .connection_timeout(timeout)
            .response_timeout(timeout)
            .retries(retries)
            .build()
    }
}

/// Sends commands, each of which is answered or fails within a timeout.
pub(crate) trait Link: Send + Sync + 'static {
    const IS_ASYNC: bool;

    fn new(servers: &Servers, timeout: Duration) -> Self;

    /// Begins with a new connection, which may reach another server.
    fn leave(&self);

    fn query(&self, command: &Cmd) -> impl Future<Output = RedisResult<Value>> + Send;

    fn send<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        async { Ok(redis::from_redis_value(self.query(command).await?)?) }
    }

    /// May end early.
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;
}

enum Blocked {
    One(Connection),
    Cluster(Box<ClusterConnection>),
}

/// Threads that share it wait for each other.
pub(crate) struct Blocking {
    servers: Servers,
    timeout: Duration,
    kept: Mutex<Option<Blocked>>,
    timeouts: AtomicU64,
}

impl Blocking {
    fn open(&self) -> RedisResult<Blocked> {
        match &self.servers {
            Servers::One(client) => {
                let made = client.get_connection_with_timeout(self.timeout)?;
                made.set_read_timeout(Some(self.timeout))?;
                made.set_write_timeout(Some(self.timeout))?;
                Ok(Blocked::One(made))
            }
            // If it retried, it would take a late reply for the next one.
            Servers::Cluster(nodes) => {
                let client = Servers::of_nodes(nodes, self.timeout, 0)?;
                Ok(Blocked::Cluster(Box::new(client.get_connection()?)))
            }
        }
    }

    /// A connection without retries does not follow ASK either.
    fn ask(connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
        let error = match command.query(connection) {
            Err(error) if error.code() == Some("ASK") => error,
            reply => return reply,
        };
        let address = error.redirect_node().and_then(|(node, _)| node.rsplit_once(':'));
        let Some((host, Ok(port))) = address.map(|(host, port)| (host, port.parse())) else {
            return Err(error);
        };
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_string(), port };
        let node = RoutingInfo::SingleNode(node);
        connection.route_command(&cmd("ASKING"), node.clone())?;
        connection.route_command(command, node)?.extract_error()
    }
}

impl Link for Blocking {
    const IS_ASYNC: bool = false;

    fn new(servers: &Servers, timeout: Duration) -> Self {
        let servers = servers.clone();
        Blocking { servers, timeout, kept: Mutex::new(None), timeouts: AtomicU64::new(0) }
    }

    fn leave(&self) {
        *lock(&self.kept) = None;
    }

    async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let timeouts = self.timeouts.load(Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        // Another thread's command timed out. Threads that waited for it would each wait as long.
        if self.timeouts.load(Ordering::Relaxed) != timeouts {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let mut once = || {
            // Taken: it is not used again after an error, because of a late reply.
            let mut connection = kept.take().map_or_else(|| self.open(), Ok)?;
            let reply = match &mut connection {
                Blocked::One(one) => command.query(one),
                Blocked::Cluster(cluster) => Self::ask(cluster, command),
            };
            *kept = reply.is_ok().then_some(connection);
            reply
        };
        let reply = match once() {
            Err(error) if error.code() == Some("MOVED") => once(),
            reply => reply,
        };
        let is_timeout = reply.as_ref().is_err_and(redis::RedisError::is_timeout);
        self.timeouts.fetch_add(is_timeout.into(), Ordering::Relaxed);
        reply
    }

    async fn sleep(duration: Duration) {
        std::thread::park_timeout(duration); // until `Guard` wakes it
    }
}

/// The result of a future that never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a blocking link answers at once"),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "tokio")]
pub(crate) use asynchronous::Tokio;

#[cfg(feature = "tokio")]
mod asynchronous {
    use super::*;

    #[derive(Clone)]
    enum Shared {
        One(redis::aio::MultiplexedConnection),
        Cluster(redis::cluster_async::ClusterConnection),
    }

    /// One connection to each server, which all tasks share.
    pub(crate) struct Tokio {
        servers: Servers,
        timeout: Duration,
        kept: Mutex<Option<Shared>>,
        opening: tokio::sync::Mutex<()>,
    }

    impl Tokio {
        fn kept(&self) -> Option<Shared> {
            lock(&self.kept).clone()
        }

        /// The connection that is there, or one that one task makes for all.
        async fn connection(&self) -> RedisResult<Shared> {
            if let Some(kept) = self.kept() {
                return Ok(kept);
            }
            let opening = tokio::time::timeout(self.timeout, self.opening.lock()).await;
            let _opening = opening.map_err(io::Error::from)?;
            if let Some(kept) = self.kept() {
                return Ok(kept);
            }
            let made = self.open().await?;
            Ok(lock(&self.kept).insert(made).clone())
        }

        async fn open(&self) -> RedisResult<Shared> {
            match &self.servers {
                Servers::One(client) => {
                    let config = redis::AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(self.timeout))
                        .set_response_timeout(Some(self.timeout));
                    let made = client.get_multiplexed_async_connection_with_config(&config);
                    made.await.map(Shared::One)
                }
                // It retries to follow a slot that moves.
                Servers::Cluster(nodes) => {
                    let client = Servers::of_nodes(nodes, self.timeout, 2)?;
                    client.get_async_connection().await.map(Shared::Cluster)
                }
            }
        }
    }

    impl Link for Tokio {
        const IS_ASYNC: bool = true;

        fn new(servers: &Servers, timeout: Duration) -> Self {
            let (kept, opening) = Default::default();
            Tokio { servers: servers.clone(), timeout, kept, opening }
        }

        fn leave(&self) {
            *lock(&self.kept) = None;
        }

        async fn query(&self, command: &Cmd) -> RedisResult<Value> {
            let reply = match &mut self.connection().await? {
                Shared::One(one) => command.query_async(one).await,
                Shared::Cluster(cluster) => command.query_async(cluster).await,
            };
            if reply.is_err() {
                self.leave();
            }
            reply
        }

        async fn sleep(duration: Duration) {
            tokio::time::sleep(duration).await;
        }
    }
}
