//! Connections of a command, which the policy of its worker judges.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::policy::Verdict;
use bailiwick::scope::{ScopeError, ScopePattern};
use bailiwick::text::escape;
use bailiwick::tool::Act;
use bailiwick::{CallError, Code, Scope};
use serde::Serialize;

use super::record::fitting;
use crate::proxy::{ConnectionReport, Deciding, Decision, Outcome, ProxyPolicy, Target, is_public};

/// The kind of scope that a connection needs.
const KIND: &str = "execute:network";
/// Maximum number of connections in the audit, and of hosts in [`Connections::denied`].
const MAX_LISTED: usize = 100;

/// The needs of a command that declares these hosts, each `host` or `host:port`. Of the addresses that are not public, only
/// those of `private` can be reached, so nobody is asked about others.
pub(super) fn needs(hosts: &[String], private: &[SocketAddr]) -> Result<Vec<Scope>, CallError> {
    hosts.iter().map(|host| need(host, private)).collect()
}

fn need(text: &str, private: &[SocketAddr]) -> Result<Scope, CallError> {
    let invalid = || {
        let message = format!(
            "`{}` is not a host or `host:port`; an IPv6 address cannot be named",
            escape(text)
        );
        CallError::new(Code::InvalidArguments, message)
    };
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| invalid())?)),
        None => (text, None),
    };
    let target = Target::parse(host, port.unwrap_or(1)).ok_or_else(invalid)?;
    if let Ok(address) = target.host.parse()
        && !is_public(address)
        && !private.iter().any(|allowed| {
            allowed.ip() == address && port.is_none_or(|port| port == allowed.port())
        })
    {
        let message =
            format!("`{address}` is not a public address, so no command can connect to it");
        return Err(CallError::new(Code::PermissionDenied, message));
    }
    let scope = match port {
        Some(_) => scope(&target),
        None => format!("{KIND}:{}", target.host)
            .parse()
            .map(Scope::beneath),
    };
    scope.map_err(|_| invalid())
}

/// The scope of a connection. There is none for an IPv6 address.
fn scope(target: &Target) -> Result<Scope, ScopeError> {
    if target.host.contains(':') {
        return Err(ScopeError::Empty(target.host.clone()));
    }
    format!("{KIND}:{}:{}", target.host, target.port).parse()
}

/// Judges the connections of a command by the policy of its call, and counts them.
pub(super) struct WorkerNetwork {
    act: Arc<Act>,
    /// Addresses that are allowed although they are not public.
    private: Vec<SocketAddr>,
    connections: Mutex<Connections>,
}

/// The connections of a command.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Connections {
    /// The hosts and ports to which it could not connect because they are not allowed.
    pub(super) denied: BTreeSet<String>,
    /// The first connections.
    first: Vec<Connection>,
    /// The number of connections.
    total: u64,
}

impl Connections {
    /// The first of each list that fit into this many bytes as JSON, with the number of all connections.
    pub(super) fn first(&self, bytes: usize) -> Self {
        Self {
            denied: fitting(&self.denied, bytes).into_iter().collect(),
            first: fitting(&self.first, bytes),
            total: self.total,
        }
    }
}

/// A connection, as it is audited.
#[derive(Clone, Debug, Serialize)]
struct Connection {
    target: Option<String>,
    outcome: String,
    sent: u64,
    received: u64,
}

impl WorkerNetwork {
    /// `None` if the policy allows no connection, also none that a person could allow.
    pub(super) fn new(act: &Arc<Act>, private: &[SocketAddr]) -> Option<Self> {
        let kind: ScopePattern = KIND.parse().ok()?;
        act.reading().may_need(&kind).then(|| Self {
            act: Arc::clone(act),
            private: private.to_vec(),
            connections: Mutex::default(),
        })
    }

    /// The connections so far.
    pub(super) fn connections(&self) -> Connections {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, target: &Target) -> Decision {
        let deny = |reason: String| Decision::Deny { reason };
        if let Err(error) = self.act.checkpoint() {
            return deny(error.message().to_owned());
        }
        let Ok(need) = scope(target) else {
            return deny(format!("`{target}` cannot be allowed; use a name"));
        };
        match self.act.reading().judge_need(&need) {
            Verdict::Allow => Decision::Allow,
            Verdict::Ask => deny(format!(
                "`{target}` needs approval; name it in `network` of `run_command`"
            )),
            Verdict::Deny => deny(format!("`{target}` is not allowed")),
        }
    }
}

impl ProxyPolicy for WorkerNetwork {
    fn decide<'a>(&'a self, target: &'a Target) -> Deciding<'a> {
        Box::pin(async { self.judge(target) })
    }

    fn allows_address(&self, address: SocketAddr) -> bool {
        self.private.contains(&address)
    }

    fn report(&self, report: ConnectionReport) {
        let mut connections = self.lock();
        connections.total += 1;
        let target = report.target.map(|target| target.to_string());
        let denied = matches!(
            report.outcome,
            Outcome::Denied { .. } | Outcome::AddressBlocked { .. }
        );
        if let (true, Some(target)) = (denied, &target)
            && connections.denied.len() < MAX_LISTED
        {
            connections.denied.insert(target.clone());
        }
        if connections.first.len() < MAX_LISTED {
            connections.first.push(Connection {
                target,
                outcome: report.outcome.to_string(),
                sent: report.sent,
                received: report.received,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_hosts_become_scopes() {
        for (host, expected) in [
            ("crates.io", "execute:network:crates.io"),
            ("Crates.IO.:443", "execute:network:crates.io:443"),
            ("1.1.1.1:80", "execute:network:1.1.1.1:80"),
        ] {
            assert_eq!(need(host, &[]).unwrap().to_string(), expected);
        }
        let [any, one] = ["a.example", "a.example:443"].map(|host| need(host, &[]).unwrap());
        let any = bailiwick::scope::Coverage::of(&any);
        assert!(any.covers(&one));
    }

    #[test]
    fn address_that_is_not_public_is_rejected_unless_the_host_allows_it() {
        let allowed = ["10.0.0.1:80".parse().unwrap()];
        for (host, is_allowed) in [
            ("10.0.0.1", true),
            ("10.0.0.1:80", true),
            ("10.0.0.1:81", false),
            ("10.0.0.2:80", false),
            ("127.0.0.1", false),
        ] {
            let code = need(host, &allowed).map_err(|error| error.code()).err();
            let expected = (!is_allowed).then_some(Code::PermissionDenied);
            assert_eq!(code, expected, "{host}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for host in [
            "",
            "a.example:",
            "a.example:x",
            "a.example:0",
            "a.example:443:1",
            "http://a.example",
            "a.example/x",
            "*",
            "*.example",
            "::1",
            "[::1]:443",
            "0x7f.1",
            "a b",
        ] {
            let error = need(host, &[]).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArguments, "{host}");
        }
    }
}
