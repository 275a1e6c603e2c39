//! Proxy that connects the programs of a sandbox to the hosts that a policy allows.
//!
//! The program reaches nothing but a listening socket on the loopback interface of its own network namespace. The
//! helper passes that socket to the host, which accepts the connections and speaks HTTP `CONNECT`, plain HTTP and
//! SOCKS5 on it.

mod address;
mod relay;
mod request;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

pub use address::Target;
pub(crate) use address::is_public;
use request::{Client, Request};

/// Port of the proxy in the sandbox.
pub(crate) const PORT: u16 = 3128;
/// Environment variables that make programs use the proxy.
pub(crate) const VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];
/// The value of [`VARIABLES`]. Many programs know no SOCKS without an additional package, so it is an HTTP proxy.
pub(crate) const URL: &str = "http://127.0.0.1:3128";
/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Delay after a failed accept, most likely for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Future of [`ProxyPolicy::decide`].
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;
/// Future of [`ProxyPolicy::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Decides which hosts the programs of a sandbox may connect to.
///
/// The proxy limits where connections go. It does not read what is sent over them, so an allowed host, such as a
/// content delivery network, may pass it on to others.
pub trait ProxyPolicy: Send + Sync + 'static {
    /// Decides whether the program may connect to `target`. The program waits meanwhile, so a person can be asked. The
    /// future is dropped when the sandbox ends.
    fn decide<'a>(&'a self, target: &'a Target) -> Deciding<'a>;

    /// Whether an allowed target may be at this address although the address is not public: a loopback, private,
    /// link-local, multicast or reserved address, a metadata service, or an address of this machine. By default, none
    /// is allowed.
    fn allows_address(&self, address: SocketAddr) -> bool {
        let _ = address;
        false
    }

    /// Resolves an allowed name. It is called once for each connection, which then goes to one of these addresses. By
    /// default, the resolver of the system is used.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    /// Called when a connection has ended, including one that was refused.
    fn report(&self, report: ConnectionReport);
}

/// Decision about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The program may connect.
    Allow,
    /// The program may not connect.
    Deny {
        /// Why; the program is told.
        reason: String,
    },
}

/// A connection of a program, reported when it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionReport {
    /// What the program asked to connect to; `None` if its request was invalid.
    pub target: Option<Target>,
    /// What the proxy did.
    pub outcome: Outcome,
    /// Number of bytes that were sent to the target.
    pub sent: u64,
    /// Number of bytes that were received from the target.
    pub received: u64,
}

/// What a proxy did with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was connected to this address.
    Connected {
        /// The address.
        address: SocketAddr,
    },
    /// The policy denied it.
    Denied {
        /// Why.
        reason: String,
    },
    /// The policy does not allow connections to this address, which is not public.
    AddressBlocked {
        /// The address.
        address: IpAddr,
    },
    /// The program sent an invalid request.
    InvalidRequest {
        /// Why it is invalid.
        message: String,
    },
    /// The name was not resolved or the target not reached.
    Failed {
        /// The cause.
        message: String,
    },
    /// The sandbox ended before the connection was decided or made.
    Canceled,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connected { address } => write!(f, "connected to `{address}`"),
            Self::Denied { reason } => write!(f, "connection denied: {reason}"),
            Self::AddressBlocked { address } => {
                write!(f, "connection denied: `{address}` is not a public address")
            }
            Self::InvalidRequest { message } => write!(f, "invalid request: {message}"),
            Self::Failed { message } => write!(f, "connection failed: {message}"),
            Self::Canceled => f.write_str("the sandbox ended"),
        }
    }
}

/// Limits of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyLimits {
    /// Number of connections at the same time. Further ones wait.
    pub connections: usize,
    /// Size of a request's head, in bytes.
    pub head_bytes: u64,
    /// Time for receiving a request's head.
    pub head_time: Duration,
    /// Time for resolving a name, and for connecting to each of its addresses.
    pub connect_time: Duration,
    /// A connection that transfers nothing for this long is closed, at the latest after twice this time.
    pub idle_time: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            head_bytes: 16 << 10,
            head_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
        }
    }
}

/// A policy and limits for the connections of a sandbox; see [`spawn_with_proxy`](crate::spawn_with_proxy).
#[derive(Clone)]
pub struct Proxy {
    policy: Arc<dyn ProxyPolicy>,
    limits: ProxyLimits,
}

impl Proxy {
    /// Creates a proxy with the default limits.
    #[must_use]
    pub fn new(policy: Arc<dyn ProxyPolicy>) -> Self {
        Self {
            policy,
            limits: ProxyLimits::default(),
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: ProxyLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves the connections of a sandbox.
    pub(crate) fn serve(self, listener: TcpListener) -> ProxyTask {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move { self.run(&listener, stopped).await });
        ProxyTask { stop, task }
    }

    async fn run(&self, listener: &TcpListener, mut stopped: oneshot::Receiver<()>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < self.limits.connections => {
                    match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(self.clone().connection(stream));
                        }
                        Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                    }
                }
            }
        }
        connections.shutdown().await;
    }

    async fn connection(self, stream: TcpStream) {
        let limits = self.limits;
        let mut record = Record::new(Arc::clone(&self.policy));
        let mut client = Client::new(stream);
        let read = timeout(limits.head_time, client.read_request(limits.head_bytes)).await;
        let Request { target, kind } = match read {
            Ok(Ok(request)) => request,
            Ok(Err(message)) => {
                record.report.outcome = Outcome::InvalidRequest { message };
                return client.refuse(&record.report.outcome, limits).await;
            }
            Err(_) => {
                let message = "it is incomplete".to_owned();
                record.report.outcome = Outcome::InvalidRequest { message };
                return;
            }
        };
        record.report.target = Some(target.clone());
        let server = match self.connect(&target).await {
            Ok((server, address)) => {
                record.report.outcome = Outcome::Connected { address };
                server
            }
            Err(outcome) => {
                record.report.outcome = outcome;
                return client.refuse(&record.report.outcome, limits).await;
            }
        };
        let transfer = relay::relay(client, server, &kind, &record.sent, &record.received);
        let counters = [&record.sent, &record.received];
        tokio::select! {
            _ = transfer => {}
            () = relay::idle(counters, limits.idle_time) => {}
        }
    }

    /// Connects to a target if the policy allows it.
    async fn connect(&self, target: &Target) -> Result<(TcpStream, SocketAddr), Outcome> {
        let literal = target.address();
        if let Some(address) = literal
            && !self.is_permitted(SocketAddr::new(address, target.port))
        {
            return Err(Outcome::AddressBlocked { address });
        }
        if let Decision::Deny { reason } = self.policy.decide(target).await {
            return Err(Outcome::Denied { reason });
        }
        let addresses = match literal {
            Some(address) => vec![address],
            None => self.resolve(&target.host).await?,
        };
        let mut outcome = Outcome::Failed {
            message: "the name has no address".to_owned(),
        };
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            let address = SocketAddr::new(address.to_canonical(), target.port);
            match self.connect_to(address).await {
                Ok(server) => return Ok((server, address)),
                Err(failed) => outcome = failed,
            }
        }
        Err(outcome)
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Outcome> {
        let resolved = timeout(self.limits.connect_time, self.policy.resolve(name)).await;
        resolved
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| Outcome::Failed {
                message: format!("the name was not resolved: {error}"),
            })
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<TcpStream, Outcome> {
        let blocked = Outcome::AddressBlocked {
            address: address.ip(),
        };
        if !self.is_permitted(address) {
            return Err(blocked);
        }
        let connected = timeout(self.limits.connect_time, TcpStream::connect(address)).await;
        let failed = |error: io::Error| Outcome::Failed {
            message: error.to_string(),
        };
        let stream = connected
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        // A connection to an address of this machine, which need not be a loopback address, starts at that address.
        let is_own = stream.local_addr().map_err(failed)?.ip() == address.ip();
        if is_own && !self.policy.allows_address(address) {
            return Err(blocked);
        }
        Ok(stream)
    }

    fn is_permitted(&self, address: SocketAddr) -> bool {
        is_public(address.ip()) || self.policy.allows_address(address)
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A proxy that runs. Dropping it closes its connections.
#[derive(Debug)]
pub(crate) struct ProxyTask {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ProxyTask {
    /// Closes all connections and waits until they are reported.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// Reports a connection when it is dropped.
struct Record {
    policy: Arc<dyn ProxyPolicy>,
    report: ConnectionReport,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Record {
    fn new(policy: Arc<dyn ProxyPolicy>) -> Self {
        Self {
            policy,
            report: ConnectionReport {
                target: None,
                outcome: Outcome::Canceled,
                sent: 0,
                received: 0,
            },
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.policy.report(ConnectionReport {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            ..self.report.clone()
        });
    }
}
