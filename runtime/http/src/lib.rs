//! HTTP on loopback addresses for the servers of bailiwick: bounded connections, request guards and tokens.
//!
//! This crate is an implementation detail that `bailiwick-mcp`, `bailiwick-console` and `bailiwick-cli` share. Only [`Token`] is
//! part of a public interface: `bailiwick-mcp` exports it.

mod body;
mod connections;
mod guard;
mod token;

use std::net::{IpAddr, SocketAddr};

pub use body::read_all;
pub use connections::{Connection, ConnectionLimits, accept_next, serve};
pub use guard::{Rejection, RequestGuard, authorize};
pub use token::Token;

/// The `Host` values of clients on this machine that connect to `address`; port 80 may be omitted.
#[must_use]
pub fn host_names(address: SocketAddr) -> Vec<String> {
    let literal = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let names = ["localhost", "127.0.0.1", "[::1]", &literal];
    let with_port = names
        .iter()
        .map(|name| format!("{name}:{}", address.port()));
    let mut hosts: Vec<_> = with_port.collect();
    if address.port() == 80 {
        hosts.extend(names.map(str::to_owned));
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_port_80_may_be_omitted() {
        let at = |address: &str| host_names(address.parse().unwrap());
        assert!(at("127.0.0.2:80").contains(&"127.0.0.2".to_owned()));
        assert!(at("127.0.0.2:80").contains(&"localhost:80".to_owned()));
        assert!(at("[::1]:8080").iter().all(|host| host.ends_with(":8080")));
    }
}
