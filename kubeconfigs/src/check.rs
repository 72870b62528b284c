//! Parses a kubeconfig and decides whether it may be used.
//!
//! Every cluster and user entry of the file is checked, not only those of the current context: a file with one forbidden entry is refused
//! as a whole. Common kubeconfigs are accepted: several contexts, `namespace`, `preferences`, `extensions`, `disable-compression`.
//!
//! Invariant: a message names keys and entries, never a value of the credential, the certificate or the URL.

pub mod address;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use base64::Engine as _;
use roadstead_core::cluster::Reason;
use roadstead_kubeio::connect::{Credential, Endpoint};
use secrecy::{ExposeSecret as _, SecretString};
use serde_saphyr::DuplicateKeyPolicy;
use serde_saphyr::options::MergeKeyPolicy;

use self::file::{Cluster, File, Mark, User};

/// *Limit*: size of a kubeconfig, in bytes. Spec: safety 5 S6.
pub const BYTES_MAX: usize = 256 * 1024;
/// *Limit*: nesting; a kubeconfig with extensions needs about eight levels.
const DEPTH_MAX: usize = 32;
/// *Limit*: YAML nodes in a file.
const NODES_MAX: usize = 50_000;
/// *Limit*: length of an entry or key name in a message, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// Settings that allow more than the fixed rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether a worker may have a loopback address, for federations on one machine.
    pub allow_loopback: bool,
}

/// Why a kubeconfig is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The reason of the condition. Spec: multikueue 2.2.
    pub reason: Reason,
    /// Row of `spec/safety.md` section 5 that the refusal enforces. Not part of the message, because clients compare
    /// that with the reference's.
    pub rule: &'static str,
    /// The message of the condition, after `load client config failed: `. It names keys, never values.
    pub message: String,
    /// Whether the same kubeconfig may be accepted later, because the refusal depends on the addresses of a name.
    pub may_pass: bool,
}

impl Refusal {
    pub(crate) const fn insecure(rule: &'static str, message: String) -> Self {
        Self {
            reason: Reason::InsecureKubeConfig,
            rule,
            message,
            may_pass: false,
        }
    }

    /// The refusal of a missing or unreadable kubeconfig.
    pub fn bad(message: impl Into<String>) -> Self {
        Self {
            reason: Reason::BadKubeConfig,
            rule: "S7",
            message: message.into(),
            may_pass: false,
        }
    }

    /// The refusal of a cluster with a `ClusterProfile`, which is not supported. Wire: the words of a reference with the gate off
    /// (`spec/multikueue.md 2.2`).
    pub fn profiles_disabled() -> Self {
        Self {
            reason: Reason::ClusterProfileDisabled,
            rule: "S1",
            message: "MultiKueueClusterProfile feature gate is disabled".to_owned(),
            may_pass: false,
        }
    }
}

/// Parses a kubeconfig (YAML or JSON) and returns the endpoint of its current context.
///
/// *Errors*: the first violation, in the order of the reference, then of our own rules. *Limits*: [`BYTES_MAX`], no anchors, aliases, merge
/// keys or duplicate keys, bounded depth.
/// *Source*: `spec/multikueue.md 2.3`, `spec/safety.md 6` and S1–S6.
pub fn check(bytes: &[u8], rules: &Rules) -> Result<Endpoint, Refusal> {
    let file = parse(bytes)?;
    let none = Cluster::default();
    let clusters: Vec<(String, &Cluster)> = file
        .clusters
        .iter()
        .flatten()
        .map(|entry| (shown(&entry.name), entry.cluster.as_ref().unwrap_or(&none)))
        .collect();
    let nobody = User::default();
    let users: Vec<(String, &User)> = file
        .users
        .iter()
        .flatten()
        .map(|entry| (shown(&entry.name), entry.user.as_ref().unwrap_or(&nobody)))
        .collect();

    // Wire: the order and the words of these checks are the reference's, as far as the check of auth providers.
    for (_, user) in &users {
        refuse(user.token_file, "S2", || "tokenFile is not allowed".to_owned())?;
    }
    for (name, cluster) in &clusters {
        refuse(cluster.insecure_skip_tls_verify, "S3", || {
            format!("insecure TLS verification is not allowed for cluster {name}")
        })?;
    }
    for (name, cluster) in &clusters {
        refuse(cluster.certificate_authority, "S2", || {
            format!(
                "certificate-authority file paths are not allowed, use certificate-authority-data for cluster {name}"
            )
        })?;
    }
    for (name, cluster) in &clusters {
        let absent = cluster.server.as_deref().unwrap_or_default().is_empty();
        refuse(Mark(absent), "S3", || {
            format!("server URL is required for cluster {name}")
        })?;
    }
    for (name, cluster) in &clusters {
        address::server(cluster.server.as_deref().unwrap_or_default(), name, *rules)?;
    }
    for (_, user) in &users {
        let basic = Mark(user.username.0 || user.password.0);
        refuse(basic, "S5", || "basic auth is not allowed".to_owned())?;
    }
    for (_, user) in &users {
        refuse(user.exec, "S1", || "exec plugins are not allowed".to_owned())?;
    }
    for (_, user) in &users {
        refuse(user.auth_provider, "S5", || {
            "auth providers are not allowed".to_owned()
        })?;
    }
    // Unlike the anchor, which has none of the checks below (spec/safety.md W11).
    for (name, user) in &users {
        refuse_user_extras(name, user)?;
    }
    for (name, cluster) in &clusters {
        refuse_cluster_extras(name, cluster)?;
    }
    current(&file, *rules)
}

fn parse(bytes: &[u8]) -> Result<File, Refusal> {
    let refuse = |why: &str| Refusal::insecure("S6", format!("failed to parse kubeconfig(apiconfig): {why}"));
    if bytes.len() > BYTES_MAX {
        return Err(refuse(&format!("larger than {} KiB", BYTES_MAX / 1024)));
    }
    let text = std::str::from_utf8(bytes).map_err(|_position| refuse("not UTF-8 text"))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_documents: 1,
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: BYTES_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let file: File = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| refuse(&describe(error.without_snippet())))?;
    let wrong = |given: &Option<String>, only: &str| {
        given
            .as_deref()
            .is_some_and(|text| !text.is_empty() && text != only)
    };
    if wrong(&file.api_version, "v1") {
        return Err(refuse("apiVersion must be v1"));
    }
    if wrong(&file.kind, "Config") {
        return Err(refuse("kind must be Config"));
    }
    unique(
        "clusters",
        file.clusters.iter().flatten().map(|entry| &*entry.name),
    )
    .and_then(|()| {
        unique(
            "contexts",
            file.contexts.iter().flatten().map(|entry| &*entry.name),
        )
    })
    .and_then(|()| unique("users", file.users.iter().flatten().map(|entry| &*entry.name)))
    .map_err(|why| refuse(&why))?;
    Ok(file)
}

/// The refusal of the text, without quoting it: a parser's own message may contain a part of a token.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the parser's list of errors is long and open; all others mean the same to the reader"
)]
fn describe(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    let what = match error {
        Error::Budget { .. } => {
            "anchors, aliases, several documents, or more nesting or entries than allowed"
        }
        Error::MergeKeyNotAllowed { .. } => "merge keys are not allowed",
        Error::DuplicateMappingKey { .. } => "a key is given twice",
        Error::SerdeMissingField { field, .. } => {
            return format!("an entry has no {field}{}", position(error));
        }
        _ => "not the shape of a kubeconfig",
    };
    format!("{what}{}", position(error))
}

fn position(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(String::new, |at| {
        format!(" (line {}, column {})", at.line(), at.column())
    })
}

fn unique<'a>(list: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("duplicate name {} in {list}", shown(name)));
        }
    }
    Ok(())
}

fn refuse(mark: Mark, rule: &'static str, message: impl FnOnce() -> String) -> Result<(), Refusal> {
    if mark.0 {
        Err(Refusal::insecure(rule, message()))
    } else {
        Ok(())
    }
}

fn refuse_user_extras(name: &str, user: &User) -> Result<(), Refusal> {
    for (mark, key) in [
        (user.client_certificate, "client-certificate"),
        (user.client_key, "client-key"),
    ] {
        refuse(mark, "S2", || {
            format!("{key} file paths are not allowed, use {key}-data for user {name}")
        })?;
    }
    for (mark, key) in [
        (user.impersonated, "as"),
        (user.as_uid, "as-uid"),
        (user.as_groups, "as-groups"),
        (user.as_user_extra, "as-user-extra"),
    ] {
        refuse(mark, "S5", || {
            format!("impersonation ({key}) is not allowed for user {name}")
        })?;
    }
    match user.unknown.keys().next() {
        Some(key) => Err(unknown(key, "user", name)),
        None => Ok(()),
    }
}

fn refuse_cluster_extras(name: &str, cluster: &Cluster) -> Result<(), Refusal> {
    for (mark, key, rule) in [
        (cluster.proxy_url, "proxy-url", "S4"),
        (cluster.tls_server_name, "tls-server-name", "S5"),
    ] {
        refuse(mark, rule, || format!("{key} is not allowed for cluster {name}"))?;
    }
    match cluster.unknown.keys().next() {
        Some(key) => Err(unknown(key, "cluster", name)),
        None => Ok(()),
    }
}

fn unknown(key: &str, kind: &str, name: &str) -> Refusal {
    Refusal::insecure("S5", format!("unknown key {} in {kind} {name}", shown(key)))
}

fn current(file: &File, rules: Rules) -> Result<Endpoint, Refusal> {
    let missing = |message: String| Refusal::insecure("S5", message);
    let context_name = file
        .current_context
        .as_deref()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| missing("current-context is required".to_owned()))?;
    let context = file
        .contexts
        .iter()
        .flatten()
        .find(|entry| entry.name == context_name)
        .and_then(|entry| entry.context.as_ref())
        .ok_or_else(|| {
            missing(format!(
                "current-context names {}, which contexts does not have",
                shown(context_name)
            ))
        })?;
    let cluster_name = context.cluster.as_deref().unwrap_or_default();
    let cluster = file
        .clusters
        .iter()
        .flatten()
        .find(|entry| entry.name == cluster_name)
        .and_then(|entry| entry.cluster.as_ref())
        .ok_or_else(|| {
            missing(format!(
                "the current context names cluster {}, which clusters does not have",
                shown(cluster_name)
            ))
        })?;
    let user_name = context.user.as_deref().unwrap_or_default();
    let user = file
        .users
        .iter()
        .flatten()
        .find(|entry| entry.name == user_name)
        .and_then(|entry| entry.user.as_ref())
        .ok_or_else(|| {
            missing(format!(
                "the current context names user {}, which users does not have",
                shown(user_name)
            ))
        })?;
    let cluster_name = shown(cluster_name);
    Ok(Endpoint {
        server: address::server(
            cluster.server.as_deref().unwrap_or_default(),
            &cluster_name,
            rules,
        )?,
        authority: authority(cluster, &cluster_name)?,
        credential: credential(user, &shown(user_name))?,
    })
}

fn authority(cluster: &Cluster, name: &str) -> Result<String, Refusal> {
    let data = cluster.certificate_authority_data.as_deref().unwrap_or_default();
    if data.is_empty() {
        // Unlike the anchor: without it, any public certificate authority could vouch for the worker.
        return Err(Refusal::insecure(
            "S3",
            format!("certificate-authority-data is required for cluster {name}"),
        ));
    }
    pem(data, "CERTIFICATE-----").ok_or_else(|| {
        Refusal::insecure(
            "S3",
            format!("certificate-authority-data is not a base64-encoded PEM certificate for cluster {name}"),
        )
    })
}

fn credential(user: &User, name: &str) -> Result<Credential, Refusal> {
    let certificate = user
        .client_certificate_data
        .as_deref()
        .filter(|data| !data.is_empty());
    let wrong = |what: &str| Err(Refusal::insecure("S5", format!("{what} for user {name}")));
    match (&user.token, certificate, &user.client_key_data) {
        (Some(token), None, None) => {
            if token.expose_secret().bytes().all(|b| b.is_ascii_graphic()) {
                Ok(Credential::Token(token.clone()))
            } else {
                wrong("token holds characters that a header cannot carry")
            }
        }
        (None, Some(certificate), Some(key)) => {
            let Some(certificate) = pem(certificate, "CERTIFICATE-----") else {
                return wrong("client-certificate-data is not a base64-encoded PEM certificate");
            };
            let Some(key) = pem(key.expose_secret(), "PRIVATE KEY-----") else {
                return wrong("client-key-data is not a base64-encoded PEM private key");
            };
            Ok(Credential::ClientCertificate {
                certificate,
                key: SecretString::from(key),
            })
        }
        // Why: each server decides itself which of the two identities it uses.
        (Some(_), _, _) => wrong("token and client certificate together are not allowed, keep one"),
        (None, None, None) => wrong("token, or client-certificate-data with client-key-data, is required"),
        (None, Some(_), None) => wrong("client-key-data is required beside client-certificate-data"),
        (None, None, Some(_)) => wrong("client-certificate-data is required beside client-key-data"),
    }
}

/// The text of a PEM block of this kind from base64. Line breaks inside the base64 are allowed, as in Go.
fn pem(data: &str, kind: &str) -> Option<String> {
    let compact: SecretString = data
        .chars()
        .filter(|c| !matches!(c, '\r' | '\n'))
        .collect::<String>()
        .into();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(compact.expose_secret())
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    (text.contains("-----BEGIN ") && text.contains(kind)).then_some(text)
}

/// A name from the file, fit for a condition: one line, bounded, no control characters.
fn shown(name: &str) -> String {
    let mut chars = name.chars();
    let mut text: String = chars
        .by_ref()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if chars.next().is_some() {
        text.push('…');
    }
    text
}
