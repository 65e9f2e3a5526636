//! Connections that are replaced after an error.
//!
//! The logic of this crate is asynchronous, and written once. Only a [`Link`] waits. A blocking one
//! waits in a runtime that it has, so [`now`] runs the same logic without an executor.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, FromRedisValue, IntoConnectionInfo, RedisResult, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

/// What can go wrong: the server, or the database behind `catch_up` and `build`.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// A result with this [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

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

    async fn connect(&self, timeout: Duration) -> RedisResult<Connection> {
        match self {
            Servers::One(client) => {
                let config = redis::AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(timeout))
                    .set_response_timeout(Some(timeout));
                let made = client.get_multiplexed_async_connection_with_config(&config);
                made.await.map(Connection::One)
            }
            Servers::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes.iter().cloned())
                    .connection_timeout(timeout)
                    .response_timeout(timeout) // for a command with all its retries
                    .retries(2) // to follow a slot that moves; also after a lost connection
                    .build()?;
                client.get_async_connection().await.map(Connection::Cluster)
            }
        }
    }
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// One connection to each server, which threads or tasks share. Each command is answered or fails
/// within a timeout.
pub(crate) struct Link {
    servers: Servers,
    timeout: Duration,
    /// Replaced after an error. Who first needs the connection makes it for all that wait.
    kept: Mutex<Arc<OnceCell<RedisResult<Connection>>>>,
    runtime: Option<Runtime>, // of a blocking link
}

impl Link {
    pub(crate) fn new(servers: &Servers, timeout: Duration, is_async: bool) -> io::Result<Self> {
        let runtime = || Builder::new_current_thread().enable_all().build();
        let runtime = (!is_async).then(runtime).transpose()?;
        Ok(Link { servers: servers.clone(), timeout, kept: Mutex::default(), runtime })
    }

    /// The result of `future`; a blocking link waits for it here.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        match &self.runtime {
            Some(runtime) => runtime.block_on(future),
            None => future.await,
        }
    }

    /// Begins with a new connection, which may reach another server.
    pub(crate) fn leave(&self) {
        *lock(&self.kept) = Arc::default();
    }

    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let kept = Arc::clone(&lock(&self.kept));
        let reply = async {
            match kept.get_or_init(|| self.servers.connect(self.timeout)).await.clone()? {
                Connection::One(mut one) => command.query_async(&mut one).await,
                Connection::Cluster(mut cluster) => command.query_async(&mut cluster).await,
            }
        };
        let reply = self.run(reply).await;
        let mut current = lock(&self.kept);
        if reply.is_err() && Arc::ptr_eq(&current, &kept) {
            *current = Arc::default();
        }
        reply
    }

    pub(crate) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        Ok(redis::from_redis_value(self.query(command).await?)?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // a resolver of names that hangs is not waited for
        }
    }
}

/// The result of a future that waits only in blocking links.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a blocking link waits"),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
