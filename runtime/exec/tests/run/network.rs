//! Runs real programs in the sandbox that connect to a test server through the proxy.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_exec::{
    ConnectionReport, Deciding, Decision, ExecError, Mount, Network, Outcome, Process, Proxy,
    ProxyLimits, ProxyPolicy, Resolving, SandboxSpec, Stage, Stdio, Target, spawn,
    spawn_with_proxy,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::sandbox::{helper, host};

/// Functions that the scripts use.
const CLIENT: &str = r#"
import os, socket, struct, sys, urllib.error, urllib.request
PROXY = ("127.0.0.1", 3128)

def everything(sock):
    data = b""
    while part := sock.recv(4096):
        data += part
    return data.decode()

def connected(target):
    "A tunnel, and the answer of the proxy."
    sock = socket.create_connection(PROXY)
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer and (part := sock.recv(1)):
        answer += part
    return sock, answer.decode()

def connect(target):
    sock, answer = connected(target)
    if " 200 " not in answer:
        return answer.split("\r\n")[0] + " " + everything(sock)
    sock.sendall(b"GET /tunnel HTTP/1.0\r\n\r\n")
    return everything(sock)

def plain(target):
    sock = socket.create_connection(PROXY)
    sock.sendall(f"GET http://{target}/plain HTTP/1.1\r\nHost: forged.example\r\n\r\n".encode())
    return everything(sock)

def socks(host, port):
    sock = socket.create_connection(PROXY)
    sock.sendall(b"\x05\x01\x00")
    assert sock.recv(2) == b"\x05\x00"
    name = host.encode()
    sock.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port))
    answer = sock.recv(10)
    if answer[1] != 0:
        return f"SOCKS {answer[1]}"
    sock.sendall(b"GET /socks HTTP/1.0\r\n\r\n")
    return everything(sock)
"#;

/// A policy that allows some hosts, knows the addresses of some names, and records all reports.
struct TestPolicy {
    /// The allowed hosts; `None` for all.
    hosts: Option<Vec<String>>,
    /// Addresses that are allowed although they are not public.
    addresses: Vec<SocketAddr>,
    /// The answers of the resolver for each name, in this order. The last one stays.
    names: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    resolved: AtomicUsize,
    /// Whether questions are never answered.
    is_silent: bool,
    events: mpsc::UnboundedSender<Event>,
}

/// What a policy is called for.
#[derive(Debug)]
enum Event {
    Decide(Target),
    Report(ConnectionReport),
}

impl TestPolicy {
    /// Allows `allowed.example`, which is at `server`.
    fn new(server: SocketAddr) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let policy = Self {
            hosts: Some(vec!["allowed.example".to_owned()]),
            addresses: vec![server],
            names: Mutex::default(),
            resolved: AtomicUsize::new(0),
            is_silent: false,
            events,
        };
        policy.resolve_as("allowed.example", &[server.ip()]);
        policy.resolve_as("denied.example", &[server.ip()]);
        (policy, receiver)
    }

    /// Adds an answer of the resolver.
    fn resolve_as(&self, name: &str, addresses: &[IpAddr]) {
        let mut names = self.names.lock().unwrap();
        let answers = names.entry(name.to_owned()).or_default();
        answers.push_back(addresses.to_vec());
    }
}

impl ProxyPolicy for TestPolicy {
    fn decide<'a>(&'a self, target: &'a Target) -> Deciding<'a> {
        let _ = self.events.send(Event::Decide(target.clone()));
        let is_allowed = match &self.hosts {
            Some(hosts) => hosts.contains(&target.host),
            None => true,
        };
        let decision = if is_allowed {
            Decision::Allow
        } else {
            Decision::Deny {
                reason: format!("`{target}` is not on the list"),
            }
        };
        Box::pin(async {
            if self.is_silent {
                std::future::pending::<()>().await;
            }
            decision
        })
    }

    fn allows_address(&self, address: SocketAddr) -> bool {
        self.addresses.contains(&address)
    }

    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        self.resolved.fetch_add(1, Ordering::SeqCst);
        let mut names = self.names.lock().unwrap();
        let found = names.get_mut(name).map(|answers| match answers.len() {
            0 | 1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        });
        Box::pin(async { found.ok_or(io::ErrorKind::NotFound.into()) })
    }

    fn report(&self, report: ConnectionReport) {
        let _ = self.events.send(Event::Report(report));
    }
}

/// A server that answers each request with its name and the head of the request.
pub(crate) async fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0
                {
                }
                let head = String::from_utf8(head).unwrap();
                let body = format!("{name} answers {head}");
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// A server that tells when the connection that it has accepted is closed.
async fn silent_server() -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A connection that is reset is closed as well.
        while stream
            .read(&mut [0; 64])
            .await
            .is_ok_and(|length| length > 0)
        {}
        let _ = closed.send(());
    });
    (address, receiver)
}

/// A sandbox with the programs of the system that runs a Python script.
fn python(script: &str, work: &Path) -> SandboxSpec {
    fs::write(work.join("client.py"), CLIENT).unwrap();
    fs::write(
        work.join("script.py"),
        format!("from client import *\n{script}"),
    )
    .unwrap();
    let argv = ["/usr/bin/python3", "-u", "script.py"].map(str::to_owned);
    let mut spec = SandboxSpec::new(argv.to_vec(), "/work");
    spec.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    for path in ["/usr", "/etc/ld.so.cache"] {
        spec.mounts.push(host(path, path, false));
    }
    for name in ["/bin", "/lib", "/lib64"] {
        let path = Path::new(name);
        match fs::read_link(path) {
            Ok(target) => spec.mounts.push(Mount::Link {
                at: path.to_owned(),
                target,
            }),
            Err(_) if path.is_dir() => spec.mounts.push(host(path, name, false)),
            Err(_) => {}
        }
    }
    spec.mounts.push(host(work, "/work", true));
    spec.network = Network::Proxy;
    spec
}

fn stdio() -> (Stdio, io::PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let stdio = Stdio {
        stdin: File::open("/dev/null").unwrap().into(),
        stdout: writer.try_clone().unwrap().into(),
        stderr: writer.into(),
    };
    (stdio, reader)
}

async fn start(spec: &SandboxSpec, proxy: Proxy) -> (Process, io::PipeReader) {
    let (stdio, reader) = stdio();
    let started = spawn_with_proxy(spec, stdio, &helper(), proxy).await;
    (started.unwrap(), reader)
}

/// Runs a script with a proxy. Returns its output.
async fn run_with(script: &str, policy: &Arc<TestPolicy>, limits: ProxyLimits) -> String {
    let work = tempfile::tempdir().unwrap();
    let policy: Arc<TestPolicy> = Arc::clone(policy);
    let proxy = Proxy::new(policy).limits(limits);
    let (mut process, mut reader) = start(&python(script, work.path()), proxy).await;
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    process.wait().await.unwrap();
    read.await.unwrap()
}

async fn run(script: &str, policy: &Arc<TestPolicy>) -> String {
    run_with(script, policy, ProxyLimits::default()).await
}

/// The reports of a sandbox that has ended.
fn reports(events: &mut mpsc::UnboundedReceiver<Event>) -> Vec<ConnectionReport> {
    std::iter::from_fn(|| events.try_recv().ok())
        .filter_map(|event| match event {
            Event::Report(report) => Some(report),
            Event::Decide(_) => None,
        })
        .collect()
}

#[tokio::test]
async fn allowed_host_is_reached_by_connect_plain_http_and_socks() {
    let server = server("server").await;
    let (policy, mut events) = TestPolicy::new(server);
    let port = server.port();
    let script = format!(
        "print(connect('allowed.example:{port}'))
print(plain('Allowed.example.:{port}'))
print(socks('allowed.example', {port}))"
    );
    let text = run(&script, &Arc::new(policy)).await;
    for part in [
        "server answers GET /tunnel HTTP/1.0\r\n",
        &format!(
            "server answers GET /plain HTTP/1.1\r\nHost: allowed.example:{port}\r\nConnection: close\r\n\r\n"
        ),
        "server answers GET /socks HTTP/1.0\r\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let reports = reports(&mut events);
    assert_eq!(reports.len(), 3);
    for report in reports {
        let target = report.target.unwrap().to_string();
        assert_eq!(target, format!("allowed.example:{port}"));
        assert_eq!(report.outcome, Outcome::Connected { address: server });
        assert!(report.sent >= 20, "{}", report.sent);
        assert!(report.received > report.sent, "{}", report.received);
    }
}

#[tokio::test]
async fn denied_host_is_refused_reported_and_not_resolved() {
    let server = server("server").await;
    let (policy, mut events) = TestPolicy::new(server);
    let policy = Arc::new(policy);
    let port = server.port();
    let script = format!(
        "print(connect('denied.example:{port}'))
print(plain('denied.example:{port}'))
print(socks('denied.example', {port}))"
    );
    let text = run(&script, &policy).await;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let reason = format!("`denied.example:{port}` is not on the list");
    assert_eq!(text.matches("HTTP/1.1 403 Forbidden").count(), 2, "{text}");
    assert_eq!(text.matches(&reason).count(), 2, "{text}");
    assert_eq!(lines.last(), Some(&"SOCKS 2"), "{text}");
    let reports = reports(&mut events);
    assert_eq!(reports.len(), 3);
    for report in reports {
        assert_eq!(report.target.unwrap().host, "denied.example");
        let reason = reason.clone();
        assert_eq!(report.outcome, Outcome::Denied { reason });
        assert_eq!((report.sent, report.received), (0, 0));
    }
    assert_eq!(policy.resolved.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn programs_find_the_proxy_in_their_environment() {
    let server = server("server").await;
    let (policy, _events) = TestPolicy::new(server);
    let policy = Arc::new(policy);
    let url = format!("http://allowed.example:{}/", server.port());
    let mut clients = vec![format!(
        "print(urllib.request.urlopen('{url}').read().decode())"
    )];
    if Path::new("/usr/bin/curl").exists() {
        for options in ["", "--proxytunnel", "--socks5-hostname 127.0.0.1:3128"] {
            clients.push(format!(
                "os.system('curl --silent --show-error {options} {url}')"
            ));
        }
    }
    for client in clients {
        let text = run(&client, &policy).await;
        assert!(text.contains("server answers GET /"), "{client}: {text}");
        let denied = client.replace("allowed", "denied");
        let text = run(&denied, &policy).await;
        assert!(!text.contains("server answers"), "{denied}: {text}");
    }
}

#[tokio::test]
async fn nothing_but_tcp_to_the_proxy_leaves_the_sandbox() {
    let server = server("server").await;
    let (policy, mut events) = TestPolicy::new(server);
    let port = server.port();
    let script = format!(
        r#"
SOCKETS = [
    (socket.AF_INET, socket.SOCK_DGRAM, 0), (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
    (socket.AF_INET, socket.SOCK_STREAM, 262), (socket.AF_INET, socket.SOCK_STREAM, 132),
    (socket.AF_INET, socket.SOCK_SEQPACKET, 132), (socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 17),
    (socket.AF_UNIX, socket.SOCK_STREAM, 0), (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
    (socket.AF_NETLINK, socket.SOCK_RAW, 0), (socket.AF_PACKET, socket.SOCK_RAW, 0),
    (socket.AF_VSOCK, socket.SOCK_STREAM, 0), (socket.AF_ALG, socket.SOCK_SEQPACKET, 0), (43, socket.SOCK_STREAM, 0),
]
for arguments in SOCKETS:
    try:
        socket.socket(*arguments)
        print("hole", arguments)
    except PermissionError:
        pass
for family in [socket.AF_INET, socket.AF_INET6]:
    for flags in [0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC]:
        for protocol in [0, socket.IPPROTO_TCP]:
            socket.socket(family, socket.SOCK_STREAM | flags, protocol).close()
for address in [("127.0.0.1", {port}), ("127.0.0.1", 22), ("::1", {port}), ("192.0.2.1", 3128), ("192.0.2.1", 80), ("169.254.169.254", 80)]:
    try:
        socket.create_connection(address)
        print("hole", address)
    except OSError:
        pass
for port in [0, {port}, 3128]:
    try:
        socket.socket().bind(("127.0.0.1", port))
        print("hole", port)
    except OSError:
        pass
try:
    socket.socket().sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", {port}))
    print("hole fastopen")
except OSError:
    pass
for name in ["allowed.example", "localhost.example"]:
    try:
        socket.getaddrinfo(name, 80)
        print("hole", name)
    except socket.gaierror:
        pass
socket.create_connection(PROXY).close()
print("end")
"#
    );
    assert_eq!(run(&script, &Arc::new(policy)).await, "end\n");
    // The last connection, without a request.
    let reports = reports(&mut events);
    assert_eq!(reports.len(), 1, "{reports:?}");
}

#[tokio::test]
async fn names_of_addresses_that_are_not_public_are_refused() {
    let server = server("server").await;
    let (mut policy, mut events) = TestPolicy::new(server);
    policy.hosts = None;
    let blocked = [
        "0.0.0.0",
        "10.1.2.3",
        "100.100.100.200",
        "127.0.0.2",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.2",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:2",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
    ];
    let mut script = String::new();
    for (number, address) in blocked.iter().enumerate() {
        policy.resolve_as(&format!("n{number}.example"), &[address.parse().unwrap()]);
        script.push_str(&format!(
            "print(connect('n{number}.example:{}'))\n",
            server.port()
        ));
    }
    let text = run(&script, &Arc::new(policy)).await;
    let refused = text.matches("HTTP/1.1 403 Forbidden").count();
    assert_eq!(refused, blocked.len(), "{text}");
    assert!(!text.contains("server answers"), "{text}");
    let reports = reports(&mut events);
    assert_eq!(reports.len(), blocked.len());
    for (report, address) in reports.iter().zip(blocked) {
        let address: IpAddr = address.parse().unwrap();
        let address = address.to_canonical();
        assert_eq!(report.outcome, Outcome::AddressBlocked { address });
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_unless_that_address_is_allowed() {
    let server = server("server").await;
    let (mut policy, mut events) = TestPolicy::new(server);
    policy.hosts = None;
    let policy = Arc::new(policy);
    let port = server.port();
    let allowed = ["127.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"];
    for host in allowed {
        let text = run(&format!("print(connect('{host}:{port}'))"), &policy).await;
        assert!(text.contains("server answers"), "{host}: {text}");
    }
    assert_eq!(reports(&mut events).len(), allowed.len());
    // The last one is another port of an allowed address.
    let other = format!("127.0.0.1:{}", port ^ 1);
    for target in [
        "127.0.0.2:80",
        "[::1]:80",
        "169.254.169.254:80",
        "[::ffff:a9fe:a9fe]:80",
        "10.0.0.1:80",
        &other,
    ] {
        let text = run(&format!("print(connect('{target}'))"), &policy).await;
        assert!(text.contains("403 Forbidden"), "{target}: {text}");
    }
    // Nobody is asked about them.
    while let Ok(event) = events.try_recv() {
        assert!(matches!(event, Event::Report(_)), "{event:?}");
    }
}

#[tokio::test]
async fn unusual_spellings_of_addresses_are_invalid() {
    let server = server("server").await;
    let (mut policy, mut events) = TestPolicy::new(server);
    policy.hosts = None;
    let policy = Arc::new(policy);
    let spellings = [
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "127.0.0.01",
        "0",
    ];
    for spelling in spellings {
        let port = server.port();
        let script = format!(
            "print(connect('{spelling}:{port}'))
print(plain('{spelling}:{port}'))
print(socks('{spelling}', {port}))"
        );
        let text = run(&script, &policy).await;
        assert_eq!(text.matches("400 Bad Request").count(), 2, "{text}");
        assert!(text.ends_with("SOCKS 1\n"), "{text}");
        let reports = reports(&mut events);
        assert_eq!(reports.len(), 3);
        let is_invalid = |report: &ConnectionReport| {
            report.target.is_none() && matches!(report.outcome, Outcome::InvalidRequest { .. })
        };
        assert!(reports.iter().all(is_invalid), "{reports:?}");
    }
    assert_eq!(policy.resolved.load(Ordering::SeqCst), 0);
    let script = format!("print(socks('127.0.0.1', {}))", server.port());
    let text = run(&script, &policy).await;
    assert!(text.contains("server answers"), "{text}");
}

#[tokio::test]
async fn connection_goes_to_the_address_of_its_only_resolution() {
    let first = server("first").await;
    let (policy, mut events) = TestPolicy::new(first);
    policy.names.lock().unwrap().clear();
    policy.resolve_as("allowed.example", &[first.ip()]);
    policy.resolve_as("allowed.example", &["127.0.0.2".parse().unwrap()]);
    let policy = Arc::new(policy);
    let script = format!("print(connect('allowed.example:{}'))", first.port());
    let text = run(&script, &policy).await;
    assert!(text.contains("first answers"), "{text}");
    assert_eq!(policy.resolved.load(Ordering::SeqCst), 1);
    let text = run(&script, &policy).await;
    assert!(text.contains("403 Forbidden"), "{text}");
    let outcomes: Vec<_> = reports(&mut events)
        .into_iter()
        .map(|report| report.outcome)
        .collect();
    let address = "127.0.0.2".parse().unwrap();
    let expected = [
        Outcome::Connected { address: first },
        Outcome::AddressBlocked { address },
    ];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn blocked_addresses_of_a_name_are_passed_over() {
    let server = server("server").await;
    let (policy, _events) = TestPolicy::new(server);
    policy.names.lock().unwrap().clear();
    let blocked = ["169.254.169.254".parse().unwrap(), server.ip()];
    policy.resolve_as("allowed.example", &blocked);
    let script = format!("print(connect('allowed.example:{}'))", server.port());
    let text = run(&script, &Arc::new(policy)).await;
    assert!(text.contains("server answers"), "{text}");
}

#[tokio::test]
async fn target_that_cannot_be_reached_is_reported() {
    let server = server("server").await;
    let (mut policy, mut events) = TestPolicy::new(server);
    policy.hosts = None;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    policy.addresses.push(closed);
    let port = closed.port();
    let script =
        format!("print(connect('allowed.example:{port}'))\nprint(connect('missing.example:80'))");
    let text = run(&script, &Arc::new(policy)).await;
    assert_eq!(text.matches("502 Bad Gateway").count(), 2, "{text}");
    let reports = reports(&mut events);
    assert_eq!(reports.len(), 2);
    let is_failed = |report: &ConnectionReport| matches!(report.outcome, Outcome::Failed { .. });
    assert!(reports.iter().all(is_failed), "{reports:?}");
}

#[tokio::test]
async fn size_of_a_head_is_bounded() {
    let server = server("server").await;
    let (policy, mut events) = TestPolicy::new(server);
    let policy = Arc::new(policy);
    let send = |padding: &str| {
        format!(
            "sock = socket.create_connection(PROXY)
sock.sendall(b'GET http://allowed.example:{}/ HTTP/1.1\\r\\n' + {padding} + b'\\r\\n')
print(everything(sock))",
            server.port()
        )
    };
    let text = run(&send("b'X: ' + b'x' * 16000 + b'\\r\\n'"), &policy).await;
    assert!(text.contains("server answers"), "{}", text.len());
    assert_eq!(reports(&mut events).len(), 1);
    for padding in [
        "b'X: ' + b'x' * 17000 + b'\\r\\n'",
        "b'X: x\\r\\n' * 4000",
        "b'X: x\\r\\n' * 101",
    ] {
        let text = run(&send(padding), &policy).await;
        assert!(text.contains("400 Bad Request"), "{padding}: {text}");
        let reports = reports(&mut events);
        assert_eq!(reports.len(), 1);
        let outcome = &reports[0].outcome;
        assert!(
            matches!(outcome, Outcome::InvalidRequest { .. }),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn clients_that_send_nothing_are_disconnected() {
    let (server, mut closed) = silent_server().await;
    let (policy, mut events) = TestPolicy::new(server);
    let policy = Arc::new(policy);
    let mut limits = ProxyLimits::default();
    limits.head_time = Duration::from_millis(100);
    for head in [
        "b'GET http://allowed.example/'",
        "b'\\x05\\x02\\x00'",
        "b''",
    ] {
        let script = format!(
            "sock = socket.create_connection(PROXY)\nsock.sendall({head})\nprint(everything(sock))"
        );
        assert_eq!(run_with(&script, &policy, limits).await, "\n", "{head}");
        let reports = reports(&mut events);
        assert_eq!(reports.len(), 1);
        let outcome = &reports[0].outcome;
        assert!(
            matches!(outcome, Outcome::InvalidRequest { .. }),
            "{outcome:?}"
        );
    }
    let mut limits = ProxyLimits::default();
    limits.idle_time = Duration::from_millis(100);
    let script = format!(
        "sock, answer = connected('allowed.example:{}')\nprint(answer.strip() + everything(sock))",
        server.port()
    );
    let text = run_with(&script, &policy, limits).await;
    assert_eq!(text, "HTTP/1.1 200 Connection established\n");
    closed.recv().await.unwrap();
    assert_eq!(reports(&mut events).len(), 1);
}

#[tokio::test]
async fn number_of_connections_is_bounded() {
    let server = server("server").await;
    let (policy, mut events) = TestPolicy::new(server);
    let policy = Arc::new(policy);
    let mut order = async |script: String, connections| {
        let mut limits = ProxyLimits::default();
        limits.connections = connections;
        let text = run_with(&script, &policy, limits).await;
        assert!(text.ends_with("end\n"), "{text}");
        let mut order = String::new();
        while let Ok(event) = events.try_recv() {
            order.push(if matches!(event, Event::Decide(_)) {
                'd'
            } else {
                'r'
            });
        }
        order
    };
    let target = format!("allowed.example:{}", server.port());
    let waiting = format!(
        "first, _ = connected('{target}')
second = socket.create_connection(PROXY)
second.sendall(b'CONNECT {target} HTTP/1.1\\r\\n\\r\\n')
first.close()
assert b' 200 ' in second.recv(100)
second.close()
print('end')"
    );
    assert_eq!(order(waiting, 1).await, "drdr");
    let parallel = format!(
        "first, _ = connected('{target}')
second, answer = connected('{target}')
assert ' 200 ' in answer
first.close()
second.close()
print('end')"
    );
    assert_eq!(order(parallel, 2).await, "ddrr");
}

#[tokio::test]
async fn connections_end_with_the_sandbox() {
    for ends_by_drop in [false, true] {
        let (server, mut closed) = silent_server().await;
        let (policy, mut events) = TestPolicy::new(server);
        let work = tempfile::tempdir().unwrap();
        let script = format!(
            "sock, _ = connected('allowed.example:{}')\nsock.sendall(b'hello')\nprint('up')\nsock.recv(1)",
            server.port()
        );
        let spec = python(&script, work.path());
        let (mut process, mut reader) = start(&spec, Proxy::new(Arc::new(policy))).await;
        let mut up = [0; 3];
        tokio::task::spawn_blocking(move || reader.read_exact(&mut up).unwrap())
            .await
            .unwrap();
        if ends_by_drop {
            drop(process);
        } else {
            process.kill().await.unwrap();
            // The decision and the report.
            assert_eq!(events.len(), 2);
        }
        closed.recv().await.unwrap();
        let Some(Event::Decide(target)) = events.recv().await else {
            panic!("no decision")
        };
        assert_eq!(
            (target.host.as_str(), target.port),
            ("allowed.example", server.port())
        );
        let Some(Event::Report(report)) = events.recv().await else {
            panic!("no report")
        };
        assert_eq!(report.outcome, Outcome::Connected { address: server });
        // The policy is dropped with the proxy.
        assert!(events.recv().await.is_none());
    }
}

#[tokio::test]
async fn open_questions_end_with_the_sandbox() {
    let server = server("server").await;
    let (mut policy, mut events) = TestPolicy::new(server);
    policy.is_silent = true;
    let work = tempfile::tempdir().unwrap();
    let script = format!("connect('allowed.example:{}')", server.port());
    let spec = python(&script, work.path());
    let (mut process, _reader) = start(&spec, Proxy::new(Arc::new(policy))).await;
    assert!(matches!(events.recv().await, Some(Event::Decide(_))));
    process.kill().await.unwrap();
    let reports = reports(&mut events);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].outcome, Outcome::Canceled);
}

#[tokio::test]
async fn sandbox_with_a_network_does_not_start_without_a_proxy() {
    let work = tempfile::tempdir().unwrap();
    let spec = python("open('ran', 'w')", work.path());
    let (stdio, _reader) = stdio();
    let started = spawn(&spec, stdio, &helper()).await;
    let Err(ExecError::Setup { stage, .. }) = started else {
        panic!("{started:?}")
    };
    assert_eq!(stage, Stage::Network);
    assert!(!work.path().join("ran").exists());
}
