//! The checked parts of a kubeconfig.
//!
//! Invariant: a key that is refused wherever it appears has the type [`Mark`], which discards the value while it is parsed. Secret values
//! are [`SecretString`] from the moment they leave the parser.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::SecretString;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A kubeconfig. Unknown keys of the file and of its contexts are ignored, because nothing reads them.
#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(rename = "apiVersion")]
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) current_context: Option<String>,
    pub(super) clusters: Option<Vec<NamedCluster>>,
    pub(super) contexts: Option<Vec<NamedContext>>,
    pub(super) users: Option<Vec<NamedUser>>,
}

/// One entry of `clusters`.
#[derive(serde::Deserialize)]
pub(super) struct NamedCluster {
    pub(super) name: String,
    pub(super) cluster: Option<Cluster>,
}

/// The address and the certificate authority of a cluster.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) certificate_authority: Mark,
    pub(super) insecure_skip_tls_verify: Mark,
    pub(super) proxy_url: Mark,
    pub(super) tls_server_name: Mark,
    /// Harmless: the encoding of answers. Accepted and not used.
    #[serde(rename = "disable-compression")]
    pub(super) _compression: Mark,
    /// Harmless: data of other tools.
    #[serde(rename = "extensions")]
    pub(super) _extensions: Mark,
    #[serde(flatten)]
    pub(super) unknown: BTreeMap<String, Mark>,
}

#[derive(serde::Deserialize)]
pub(super) struct NamedContext {
    pub(super) name: String,
    pub(super) context: Option<Context>,
}

/// A cluster with a user.
#[derive(Default, serde::Deserialize)]
pub(super) struct Context {
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
}

#[derive(serde::Deserialize)]
pub(super) struct NamedUser {
    pub(super) name: String,
    pub(super) user: Option<User>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    #[serde(deserialize_with = "hidden")]
    pub(super) token: Option<SecretString>,
    pub(super) client_certificate_data: Option<String>,
    #[serde(deserialize_with = "hidden")]
    pub(super) client_key_data: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Mark,
    pub(super) client_certificate: Mark,
    pub(super) client_key: Mark,
    pub(super) username: Mark,
    pub(super) password: Mark,
    pub(super) exec: Mark,
    pub(super) auth_provider: Mark,
    #[serde(rename = "as")]
    pub(super) impersonated: Mark,
    pub(super) as_uid: Mark,
    pub(super) as_groups: Mark,
    pub(super) as_user_extra: Mark,
    /// Harmless: data of other tools.
    #[serde(rename = "extensions")]
    pub(super) _extensions: Mark,
    #[serde(flatten)]
    pub(super) unknown: BTreeMap<String, Mark>,
}

fn hidden<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(SecretString::from))
}

/// Whether a key is present with a meaningful value; the value is discarded.
///
/// As in the Go loader, `null`, `false`, empty text and an empty list mean the same as no key; an empty map does not
/// (`exec: {}` is an exec plugin).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark(pub(super) bool);

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MarkVisitor).map(Self)
    }
}

struct MarkVisitor;

impl<'de> Visitor<'de> for MarkVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_none<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_str<E>(self, value: &str) -> Result<bool, E> {
        Ok(!value.is_empty())
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<bool, E> {
        Ok(!value.is_empty())
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i128<E>(self, _: i128) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u128<E>(self, _: u128) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut any = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(true)
    }
}
