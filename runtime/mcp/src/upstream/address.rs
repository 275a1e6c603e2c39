//! Checks which network addresses may be contacted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The network zone of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    Loopback,
    Private,
    Public,
    /// Link-local, multicast, reserved and unspecified addresses.
    Unroutable,
}

impl Zone {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        match (a, b) {
            (127, _) => Self::Loopback,
            (0 | 224.., _) | (169, 254) | (198, 18 | 19) => Self::Unroutable,
            (100, 64..=127) => Self::Private,
            _ if address.is_private() => Self::Private,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let [a, b, c, d, e, f, g, h] = address.segments();
        let v4 = |high: u16, low: u16| {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match (a, b, c, d, e, f) {
            _ if address.is_loopback() => Self::Loopback,
            // IPv4-mapped, and NAT64.
            (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => v4(g, h),
            (0x2002, ..) => v4(b, c),
            (0xfc00..=0xfdff, ..) => Self::Private,
            (0x2001, 0, ..) => Self::Unroutable,
            (0x2000..=0x3fff, ..) => Self::Public,
            _ => Self::Unroutable,
        }
    }

    /// The zone of a URL's host. A name is public unless it is `localhost`.
    pub(super) fn of_url(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match literal.unwrap_or(host).parse() {
            Ok(address) => Self::of(address),
            Err(_) if is_localhost(host) => Self::Loopback,
            Err(_) => Self::Public,
        }
    }
}

fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Parses an `http` or `https` URL with a host.
pub(super) fn parse_http_url(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let is_http = matches!(url.scheme(), "http" | "https");
    (is_http && url.has_host()).then_some(url)
}

/// Whether requests to `url` would be sent unencrypted over a network.
pub(super) fn is_insecure(url: &Url) -> bool {
    url.scheme() != "https" && Zone::of_url(url) != Zone::Loopback
}

/// Which addresses may be contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressPolicy {
    /// A configured address. If it is a loopback address, it must resolve to loopback.
    Configured(Zone),
    /// Addresses that a server in this zone names: loopback and private addresses are allowed only if the server itself
    /// is in that zone, or if `private` allows private ones.
    Discovered { server: Zone, private: bool },
}

impl AddressPolicy {
    fn allows(self, zone: Zone) -> bool {
        match self {
            Self::Configured(Zone::Loopback) => zone == Zone::Loopback,
            Self::Configured(_) => true,
            Self::Discovered { server, private } => match zone {
                Zone::Loopback => server == Zone::Loopback,
                Zone::Private => private || server == Zone::Private,
                Zone::Public => true,
                Zone::Unroutable => false,
            },
        }
    }

    /// Whether the host of `url` may be contacted, before it is resolved.
    pub(super) fn allows_url(self, url: &Url) -> bool {
        !is_insecure(url) && self.allows(Zone::of_url(url))
    }
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = *self;
        Box::pin(async move {
            let is_local_name = is_localhost(name.as_str());
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed = found.filter(|address| {
                let zone = Zone::of(address.ip());
                policy.allows(zone) && (!is_local_name || zone == Zone::Loopback)
            });
            let allowed: Vec<SocketAddr> = allowed.collect();
            if allowed.is_empty() {
                return Err("the name stands for no machine that may be spoken to".into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_right_zone() {
        for (address, zone) in [
            ("127.0.0.1", Zone::Loopback),
            ("127.9.9.9", Zone::Loopback),
            ("::1", Zone::Loopback),
            ("::ffff:127.0.0.1", Zone::Loopback),
            ("10.0.0.1", Zone::Private),
            ("100.64.0.1", Zone::Private),
            ("192.168.1.1", Zone::Private),
            ("::ffff:10.0.0.1", Zone::Private),
            ("64:ff9b::a00:1", Zone::Private),
            ("2002:a00:1::", Zone::Private),
            ("fd00::1", Zone::Private),
            ("8.8.8.8", Zone::Public),
            ("2606:4700::1", Zone::Public),
            ("64:ff9b::808:808", Zone::Public),
            ("0.0.0.0", Zone::Unroutable),
            ("169.254.169.254", Zone::Unroutable),
            ("224.0.0.1", Zone::Unroutable),
            ("255.255.255.255", Zone::Unroutable),
            ("::", Zone::Unroutable),
            ("fe80::1", Zone::Unroutable),
            ("ff02::1", Zone::Unroutable),
        ] {
            assert_eq!(Zone::of(address.parse().unwrap()), zone, "{address}");
        }
    }

    #[test]
    fn plain_http_is_allowed_for_loopback_only() {
        for (url, clear) in [
            ("http://127.0.0.1:1/", false),
            ("http://[::1]/", false),
            ("http://localhost/", false),
            ("http://a.localhost./", false),
            ("https://example.com/", false),
            ("http://example.com/", true),
            ("http://10.0.0.1/", true),
            ("http://localhost.example.com/", true),
            ("http://127.0.0.1.example.com/", true),
            ("http://127.0.0.1@example.com/", true),
        ] {
            assert_eq!(is_insecure(&parse_http_url(url).unwrap()), clear, "{url}");
        }
        for none in ["ftp://x/", "file:///x", "x", "http://", ""] {
            assert!(parse_http_url(none).is_none(), "{none}");
        }
    }

    #[test]
    fn discovered_addresses_stay_in_the_servers_zone() {
        let named = |server, private| AddressPolicy::Discovered { server, private };
        let check = |policy: AddressPolicy, url: &str, allowed: bool| {
            assert_eq!(
                policy.allows_url(&parse_http_url(url).unwrap()),
                allowed,
                "{url}"
            );
        };
        for server in [Zone::Loopback, Zone::Private, Zone::Public] {
            check(named(server, false), "https://example.com/x", true);
            check(named(server, false), "http://example.com/x", false);
            check(named(server, true), "https://169.254.169.254/x", false);
        }
        check(named(Zone::Loopback, false), "http://127.0.0.1:5/x", true);
        check(named(Zone::Loopback, false), "https://10.0.0.1/x", false);
        check(named(Zone::Private, false), "https://10.0.0.1/x", true);
        check(named(Zone::Private, false), "https://localhost/x", false);
        check(named(Zone::Public, false), "https://10.0.0.1/x", false);
        check(named(Zone::Public, true), "https://10.0.0.1/x", true);
        check(named(Zone::Public, true), "https://127.0.0.1/x", false);
    }

    #[tokio::test]
    async fn resolved_addresses_are_checked() {
        let resolve = async |policy: AddressPolicy, name: &str| {
            policy.resolve(name.parse().unwrap()).await.is_ok()
        };
        assert!(resolve(AddressPolicy::Configured(Zone::Loopback), "localhost").await);
        let here = AddressPolicy::Discovered {
            server: Zone::Loopback,
            private: false,
        };
        assert!(resolve(here, "localhost").await);
        let public = AddressPolicy::Discovered {
            server: Zone::Public,
            private: true,
        };
        assert!(!resolve(public, "localhost").await);
    }
}
