//! An address of the web in, whether this host speaks to it out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Where a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This machine.
    Here,
    /// A network that is not the public one.
    Private,
    /// The public network.
    Public,
    /// Addresses of a link, of many machines, or of none: nobody offers a service to others there.
    Nowhere,
}

impl Place {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        match (a, b) {
            (127, _) => Self::Here,
            (0 | 224.., _) | (169, 254) | (198, 18 | 19) => Self::Nowhere,
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
            _ if address.is_loopback() => Self::Here,
            // Mapped, and translated by a gateway.
            (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => v4(g, h),
            (0x2002, ..) => v4(b, c),
            (0xfc00..=0xfdff, ..) => Self::Private,
            (0x2001, 0, ..) => Self::Nowhere,
            (0x2000..=0x3fff, ..) => Self::Public,
            _ => Self::Nowhere,
        }
    }

    /// Where an address of the web says that it is; a name says so only if it is this machine's.
    pub(super) fn said(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match literal.unwrap_or(host).parse() {
            Ok(address) => Self::of(address),
            Err(_) if is_localhost(host) => Self::Here,
            Err(_) => Self::Public,
        }
    }
}

fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Reads an address that can be spoken to by HTTP.
pub(super) fn read(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let spoken = matches!(url.scheme(), "http" | "https");
    (spoken && url.has_host()).then_some(url)
}

/// Whether what is sent there can be read on the way.
pub(super) fn is_clear(url: &Url) -> bool {
    url.scheme() != "https" && Place::said(url) != Place::Here
}

/// Which machines are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachable {
    /// The one that a person wrote down; what is to be this machine is this machine.
    Written(Place),
    /// Those that a server names, which itself is there: nothing on this machine or a private network, unless the server
    /// is there itself, or the host says so.
    #[cfg_attr(
        not(any(feature = "oauth", test)),
        expect(dead_code, reason = "only a sign-in goes where a server says")
    )]
    Named { server: Place, private: bool },
}

impl Reachable {
    fn admits(self, place: Place) -> bool {
        match self {
            Self::Written(Place::Here) => place == Place::Here,
            Self::Written(_) => true,
            Self::Named { server, private } => match place {
                Place::Here => server == Place::Here,
                Place::Private => private || server == Place::Private,
                Place::Public => true,
                Place::Nowhere => false,
            },
        }
    }

    /// Whether an address may be spoken to, as far as its text tells.
    #[cfg(feature = "oauth")]
    pub(super) fn admits_url(self, url: &Url) -> bool {
        !is_clear(url) && self.admits(Place::said(url))
    }
}

impl Resolve for Reachable {
    fn resolve(&self, name: Name) -> Resolving {
        let reachable = *self;
        Box::pin(async move {
            let named_here = is_localhost(name.as_str());
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let admitted = found.filter(|address| {
                let place = Place::of(address.ip());
                reachable.admits(place) && (!named_here || place == Place::Here)
            });
            let admitted: Vec<SocketAddr> = admitted.collect();
            if admitted.is_empty() {
                return Err("the name stands for no machine that may be spoken to".into());
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_where_their_numbers_say() {
        for (address, place) in [
            ("127.0.0.1", Place::Here),
            ("127.9.9.9", Place::Here),
            ("::1", Place::Here),
            ("::ffff:127.0.0.1", Place::Here),
            ("10.0.0.1", Place::Private),
            ("100.64.0.1", Place::Private),
            ("192.168.1.1", Place::Private),
            ("::ffff:10.0.0.1", Place::Private),
            ("64:ff9b::a00:1", Place::Private),
            ("2002:a00:1::", Place::Private),
            ("fd00::1", Place::Private),
            ("8.8.8.8", Place::Public),
            ("2606:4700::1", Place::Public),
            ("64:ff9b::808:808", Place::Public),
            ("0.0.0.0", Place::Nowhere),
            ("169.254.169.254", Place::Nowhere),
            ("224.0.0.1", Place::Nowhere),
            ("255.255.255.255", Place::Nowhere),
            ("::", Place::Nowhere),
            ("fe80::1", Place::Nowhere),
            ("ff02::1", Place::Nowhere),
        ] {
            assert_eq!(Place::of(address.parse().unwrap()), place, "{address}");
        }
    }

    #[test]
    fn what_is_not_encrypted_goes_to_this_machine_alone() {
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
            assert_eq!(is_clear(&read(url).unwrap()), clear, "{url}");
        }
        for none in ["ftp://x/", "file:///x", "x", "http://", ""] {
            assert!(read(none).is_none(), "{none}");
        }
    }

    #[cfg(feature = "oauth")]
    #[test]
    fn a_server_sends_its_host_nowhere_that_it_is_not_itself() {
        let named = |server, private| Reachable::Named { server, private };
        let check = |reachable: Reachable, url: &str, admitted: bool| {
            assert_eq!(reachable.admits_url(&read(url).unwrap()), admitted, "{url}");
        };
        for server in [Place::Here, Place::Private, Place::Public] {
            check(named(server, false), "https://example.com/x", true);
            check(named(server, false), "http://example.com/x", false);
            check(named(server, true), "https://169.254.169.254/x", false);
        }
        check(named(Place::Here, false), "http://127.0.0.1:5/x", true);
        check(named(Place::Here, false), "https://10.0.0.1/x", false);
        check(named(Place::Private, false), "https://10.0.0.1/x", true);
        check(named(Place::Private, false), "https://localhost/x", false);
        check(named(Place::Public, false), "https://10.0.0.1/x", false);
        check(named(Place::Public, true), "https://10.0.0.1/x", true);
        check(named(Place::Public, true), "https://127.0.0.1/x", false);
    }

    #[tokio::test]
    async fn names_are_held_to_what_they_stand_for() {
        let resolve = async |reachable: Reachable, name: &str| {
            reachable.resolve(name.parse().unwrap()).await.is_ok()
        };
        assert!(resolve(Reachable::Written(Place::Here), "localhost").await);
        let here = Reachable::Named {
            server: Place::Here,
            private: false,
        };
        assert!(resolve(here, "localhost").await);
        let public = Reachable::Named {
            server: Place::Public,
            private: true,
        };
        assert!(!resolve(public, "localhost").await);
    }
}
