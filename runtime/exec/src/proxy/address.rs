//! Targets of connections, and which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a name.
const MAX_NAME: usize = 253;
/// Maximum length of a part of a name.
const MAX_LABEL: usize = 63;

/// A host and a port that a program asks to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Target {
    /// A name in lower case without a final dot, or an IP address in its usual form. An IPv4 address that is written as
    /// an IPv6 address is an IPv4 address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Target {
    /// Parses a host. Returns `None` unless it is an ASCII name or an IP address in its usual form; `127.1`,
    /// `0x7f000001` and `2130706433` are neither.
    #[must_use]
    pub fn parse(host: &str, port: u16) -> Option<Self> {
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => name(host)?,
        };
        (port != 0).then_some(Self { host, port })
    }

    /// Parses `host:port`. An IPv6 address is in brackets. The port may only be missing if there is a default.
    pub(super) fn parse_authority(authority: &str, default: Option<u16>) -> Option<Self> {
        let (host, port, is_v6) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (host, rest.strip_prefix(':'), true)
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port), false),
                None => (authority, None, false),
            },
        };
        let is_complete = !is_v6 || port.is_some() || authority.ends_with(']');
        let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port {
            Some(port) => Some(port).filter(digits)?.parse().ok()?,
            None => default?,
        };
        let target = Self::parse(host, port)?;
        (is_complete && is_v6 == host.contains(':')).then_some(target)
    }

    /// The address if the host is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// A name in lower case. The last part of a name is not a number: resolvers read such names as IPv4 addresses.
fn name(host: &str) -> Option<String> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_valid = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(allowed)
    };
    let starts_with_digit = |label: &str| label.starts_with(|first: char| first.is_ascii_digit());
    let is_number = name.rsplit('.').next().is_some_and(|last| {
        last.bytes().all(|byte| byte.is_ascii_digit())
            || (starts_with_digit(last) && last.to_ascii_lowercase().starts_with("0x"))
    });
    let is_name = name.len() <= MAX_NAME && name.split('.').all(is_valid) && !is_number;
    is_name.then(|| name.to_ascii_lowercase())
}

/// Whether an address belongs to the public internet, and is not a service of a cloud for its machines.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        // This network, private, shared, loopback and link-local addresses.
        [0 | 10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            // Protocol assignments, documentation, relays of IPv6 and benchmarks.
            | [192, 0, 0 | 2, _]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            // Multicast, reserved and broadcast addresses.
            | [224..=255, ..]
            // The service of Azure for its machines.
            | [168, 63, 129, 16]
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // An IPv4 address behind NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Protocol assignments with Teredo, documentation and 6to4.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => matches!(first, 0x2000..=0x3fff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_normalized() {
        for (host, normalized) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com.", "example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("a_b.example", "a_b.example"),
            ("1password.com", "1password.com"),
            ("127.0.0.1.example", "127.0.0.1.example"),
            ("localhost", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("::1", "::1"),
            ("0:0:0:0:0:0:0:1", "::1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::FFFF:7f00:1", "127.0.0.1"),
        ] {
            assert_eq!(Target::parse(host, 1).unwrap().host, normalized, "{host}");
        }
    }

    #[test]
    fn unusual_spellings_of_addresses_and_invalid_names_are_rejected() {
        let long_label = "a".repeat(64);
        let long_name = "abc.".repeat(64);
        for host in [
            "",
            ".",
            "a..b",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0X7F.1",
            "0x7f.0.0.0x1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.1.",
            "example.1",
            "example.0x1",
            "a b",
            "a/b",
            "a@b",
            "a%2eb",
            "a\0b",
            "a\r\nb",
            "bücher.example",
            "①②⑦.0.0.1",
            "fe80::1%eth0",
            "[::1]",
            &long_label,
            &long_name,
        ] {
            assert_eq!(Target::parse(host, 1), None, "{host}");
        }
        assert_eq!(Target::parse("example.com", 0), None);
    }

    #[test]
    fn authorities_are_parsed() {
        let parse = |authority, default| {
            Target::parse_authority(authority, default).map(|target| target.to_string())
        };
        for (authority, default, target) in [
            ("example.com:443", None, Some("example.com:443")),
            ("example.com", Some(80), Some("example.com:80")),
            ("[::1]:443", None, Some("[::1]:443")),
            ("[2001:4860::1]", Some(80), Some("[2001:4860::1]:80")),
            ("[::ffff:10.0.0.1]:1", None, Some("10.0.0.1:1")),
            ("example.com", None, None),
            ("example.com:", Some(80), None),
            ("example.com:+80", None, None),
            ("example.com:0", None, None),
            ("example.com:65536", None, None),
            ("example.com:1:2", None, None),
            ("user@example.com:1", None, None),
            ("::1", Some(80), None),
            ("[::1", Some(80), None),
            ("[::1]x", Some(80), None),
            ("[example.com]:1", None, None),
            ("[127.0.0.1]:1", None, None),
        ] {
            assert_eq!(parse(authority, default).as_deref(), target, "{authority}");
        }
    }

    #[test]
    fn only_public_addresses_are_public() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "168.63.129.17",
            "172.15.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
            "2606:4700::1111",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
