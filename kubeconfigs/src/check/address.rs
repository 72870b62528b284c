//! The addresses that a worker's API server may have.
//!
//! Invariant: the checked text is the used text. The URL is parsed once, and the client connects to the result, so that no second parser
//! can read it differently.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roadstead_kubeio::connect::Endpoint;
use url::{Host, Url};

use super::{Refusal, Rules};

/// Metadata addresses of cloud providers outside the link-local ranges: AWS over IPv6, Alibaba, Azure's host agent, Oracle.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];
/// Names that resolve to metadata services inside a cloud.
const METADATA_NAMES: [&str; 5] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];
/// Names that always mean this machine.
const LOOPBACK_NAMES: [&str; 4] = [
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
];
/// Longest DNS name, RFC 1035.
const NAME_BYTES_MAX: usize = 253;
/// Longest part of a DNS name.
const LABEL_BYTES_MAX: usize = 63;

/// Why an address is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// This machine; allowed by [`Rules::allow_loopback`].
    Loopback,
    /// Link-local, where cloud metadata services live. Never allowed.
    LinkLocalOrMetadata,
    /// Multicast or broadcast. Never allowed.
    NotOneMachine,
}

impl Forbidden {
    /// The kind of address, for a sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocalOrMetadata => "a link-local or metadata address",
            Self::NotOneMachine => "a multicast or broadcast address",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Loopback => {
                "give the address at which the manager reaches it; where the manager runs on the same machine, set \
                 multiKueue.allowLoopbackWorkers in its RoadsteadConfiguration"
            }
            Self::LinkLocalOrMetadata | Self::NotOneMachine => {
                "give the address at which the manager reaches it"
            }
        }
    }
}

/// Decides whether a worker's API server may have this address. A resolver can call it for every answer.
///
/// Spec: safety 5 S4.
pub fn judge(address: IpAddr, rules: &Rules) -> Result<(), Forbidden> {
    let address = embedded(address);
    if METADATA.contains(&address) {
        return Err(Forbidden::LinkLocalOrMetadata);
    }
    let (link_local, crowd) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.is_multicast()),
    };
    if link_local {
        Err(Forbidden::LinkLocalOrMetadata)
    } else if crowd {
        Err(Forbidden::NotOneMachine)
    } else if is_this_machine(address) && !rules.allow_loopback {
        Err(Forbidden::Loopback)
    } else {
        Ok(())
    }
}

/// Resolves the endpoint's name and refuses it if any answer is a forbidden address. [`super::check`] has already checked literal
/// addresses.
///
/// *Limit*: the answer may change before the connection is made; only a resolver inside the client closes that gap.
///
/// *Errors*: a refusal that may pass, because DNS may give a bad answer for a moment. A name that does not resolve is not refused here: the
/// connection will report that better.
pub async fn judge_resolved(endpoint: &Endpoint, rules: &Rules) -> Result<(), Refusal> {
    let Some((host, port)) = Url::parse(&endpoint.server)
        .ok()
        .and_then(|url| Some((url.domain()?.to_owned(), url.port_or_known_default()?)))
    else {
        return Ok(());
    };
    let Ok(answers) = tokio::net::lookup_host((host.as_str(), port)).await else {
        return Ok(());
    };
    for answer in answers {
        judge(answer.ip(), rules).map_err(|forbidden| {
            let (kind, remedy) = (forbidden.describe(), forbidden.remedy());
            let message = format!(
                "server resolves to {kind} ({}), which is not allowed: {remedy}",
                answer.ip()
            );
            Refusal {
                may_pass: true,
                ..Refusal::insecure("S4", message)
            }
        })?;
    }
    Ok(())
}

/// Checks `server` of cluster `name`; returns the URL to use.
///
/// Spec: multikueue 2.3 (`untrusted server endpoint`), safety 5 S3 and S4.
pub(super) fn server(text: &str, name: &str, rules: Rules) -> Result<String, Refusal> {
    let untrusted = || Refusal::insecure("S4", "untrusted server endpoint".to_owned());
    // Why: URL parsers drop tabs and convert backslashes; an honest URL contains neither.
    if text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || c == '\\')
    {
        return Err(untrusted());
    }
    let url = Url::parse(text).map_err(|_names_the_value| untrusted())?;
    match url.scheme() {
        "https" => {}
        "http" => {
            return Err(Refusal::insecure(
                "S3",
                format!("server must start with https:// for cluster {name}"),
            ));
        }
        _ => return Err(untrusted()),
    }
    let refuse_part = |part: &str| {
        Refusal::insecure(
            "S4",
            format!("{part} in the server URL is not allowed for cluster {name}"),
        )
    };
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return Err(refuse_part("user info"));
    }
    if url.query().is_some() {
        return Err(refuse_part("a query"));
    }
    if url.fragment().is_some() {
        return Err(refuse_part("a fragment"));
    }
    let forbidden = match url.host() {
        Some(Host::Ipv4(v4)) => judge(v4.into(), &rules).err(),
        Some(Host::Ipv6(v6)) => judge(v6.into(), &rules).err(),
        Some(Host::Domain(domain)) if is_dns_subdomain(domain) => judge_name(domain, rules).err(),
        Some(Host::Domain(_)) | None => return Err(untrusted()),
    };
    if let Some(forbidden) = forbidden {
        return Err(Refusal::insecure(
            "S4",
            format!(
                "server is {}, which is not allowed for cluster {name}: {}",
                forbidden.describe(),
                forbidden.remedy()
            ),
        ));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn judge_name(domain: &str, rules: Rules) -> Result<(), Forbidden> {
    if METADATA_NAMES.contains(&domain) {
        return Err(Forbidden::LinkLocalOrMetadata);
    }
    let this_machine = LOOPBACK_NAMES.contains(&domain) || domain.ends_with(".localhost");
    if this_machine && !rules.allow_loopback {
        return Err(Forbidden::Loopback);
    }
    Ok(())
}

/// Whether an address reaches this machine: a loopback address, or the unspecified address, which systems treat the same.
fn is_this_machine(address: IpAddr) -> bool {
    match address {
        // Why the whole of 0.0.0.0/8: it means "this network", and Linux connects it to itself.
        IpAddr::V4(v4) => v4.is_loopback() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified(),
    }
}

/// The IPv4 address inside an IPv6 address of mapped, compatible, NAT64 or 6to4 form; any other address unchanged.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let four = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => four(high, low),
        // Why the guard: `::` and `::1` are IPv6 addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => four(high, low),
        _ => address,
    }
}

/// Whether a name is an RFC 1123 name as the reference accepts it; the text is already lower case.
fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(|label| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}
