//! The Secret that holds a kubeconfig: reading, rendering and building it.
//!
//! Invariant: the kubeconfig text is a [`SecretString`] until it is put into the Secret object that is sent to the API
//! server; nothing here prints that object.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Deref;
use std::sync::LazyLock;

use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use roadstead_api::kueue::v1beta2::{ClusterSource, LocationType};
use roadstead_kubeio::connect::{Credential, Endpoint};
use secrecy::{ExposeSecret as _, SecretString};

use crate::check::{BYTES_MAX, Refusal, Rules, check};

/// Key of the kubeconfig in the Secret. Wire: the reference's.
pub const KEY: &str = "kubeconfig";
/// Label on a Secret that Roadstead wrote; its value is the name of the `MultiKueueCluster`.
pub const CREDENTIAL_LABEL: &str = "roadstead.dev/credential";
/// Annotation with the time (RFC 3339) at which the credential ends.
pub const EXPIRES_AT: &str = "roadstead.dev/expires-at";
/// Annotation with the time (RFC 3339) at which the credential was issued.
pub const ISSUED_AT: &str = "roadstead.dev/issued-at";
/// The allowed types of a Secret with a kubeconfig; without a type it counts as the first. Spec: safety 6.
const TYPES: [&str; 2] = ["Opaque", "federation/kubeconfig"];

/// The time in which a credential is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
}

/// The kubeconfig in the Secret called `name`; `None` stands for a missing Secret.
///
/// *Errors*: `BadKubeConfig`, in the words of `spec/multikueue.md 2.2`.
pub fn read<'a>(name: &str, secret: Option<&'a Secret>) -> Result<&'a [u8], Refusal> {
    let secret = secret.ok_or_else(|| Refusal::bad(format!("Secret \"{name}\" not found")))?;
    if let Some(given) = secret.type_.as_deref()
        && !given.is_empty()
        && !TYPES.contains(&given)
    {
        return Err(Refusal::bad(format!(
            "secret \"{name}\" must have type {}",
            TYPES.join(" or ")
        )));
    }
    let bytes = secret
        .data
        .as_ref()
        .and_then(|data| data.get(KEY))
        .ok_or_else(|| Refusal::bad(format!("key \"{KEY}\" not found in secret \"{name}\"")))?;
    if bytes.0.len() > BYTES_MAX {
        return Err(Refusal::bad(format!(
            "key \"{KEY}\" in secret \"{name}\" is larger than {} KiB",
            BYTES_MAX / 1024
        )));
    }
    Ok(&bytes.0)
}

/// The endpoint that a `MultiKueueCluster` names; `find` returns a Secret of the manager's namespace by name.
///
/// *Limits*: files on the manager's disk are refused, whatever their path, and so are `ClusterProfile`s, whatever the gate says.
pub fn load<S: Deref<Target = Secret>>(
    source: &ClusterSource,
    find: impl FnOnce(&str) -> Option<S>,
    rules: &Rules,
) -> Result<Endpoint, Refusal> {
    let Some(kubeconfig) = &source.kube_config else {
        return Err(Refusal::profiles_disabled());
    };
    match kubeconfig.location_type {
        LocationType::Secret => {
            let secret = find(&kubeconfig.location);
            check(read(&kubeconfig.location, secret.as_deref())?, rules)
        }
        // Wire: the end of the reference's message for a path that it does not trust (`spec/multikueue.md 2.3`).
        LocationType::Path => Err(Refusal::bad("kubeconfig path is not under the allowed prefix")),
    }
}

/// A fingerprint of an endpoint, which does not reveal the credential. Equal endpoints have equal fingerprints within one process; another
/// process gets other fingerprints.
pub fn fingerprint(endpoint: &Endpoint) -> String {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let secret = match &endpoint.credential {
        Credential::Token(token) => ("", token),
        Credential::ClientCertificate { certificate, key } => (certificate.as_str(), key),
    };
    let whole = (
        &endpoint.server,
        &endpoint.authority,
        secret.0,
        secret.1.expose_secret(),
    );
    format!("{:016x}", SEED.hash_one(whole))
}

/// A kubeconfig with one cluster, one user and one context, all called `cluster`. [`crate::check::check`] accepts it if it accepts the
/// address.
pub fn render(cluster: &str, endpoint: &Endpoint) -> SecretString {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let user = match &endpoint.credential {
        Credential::Token(token) => format!("token: {}", quoted(token.expose_secret())),
        Credential::ClientCertificate { certificate, key } => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            encoded(certificate),
            encoded(key.expose_secret())
        ),
    };
    let name = quoted(cluster);
    SecretString::from(format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {name}\n  \
           cluster:\n    \
             server: {server}\n    \
             certificate-authority-data: {authority}\n\
         users:\n\
         - name: {name}\n  \
           user:\n    \
             {user}\n\
         contexts:\n\
         - name: {name}\n  \
           context:\n    \
             cluster: {name}\n    \
             user: {name}\n\
         current-context: {name}\n",
        server = quoted(&endpoint.server),
        authority = encoded(&endpoint.authority),
    ))
}

/// The Secret for the credential of `cluster`, as `cluster join` writes it.
pub fn build(
    name: &str,
    namespace: &str,
    cluster: &str,
    kubeconfig: &SecretString,
    lifetime: Lifetime,
) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([(
                CREDENTIAL_LABEL.to_owned(),
                cluster.to_owned(),
            )])),
            annotations: Some(BTreeMap::from([
                (EXPIRES_AT.to_owned(), lifetime.expires.to_string()),
                (ISSUED_AT.to_owned(), lifetime.issued.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        type_: Some(TYPES[0].to_owned()),
        data: Some(BTreeMap::from([(
            KEY.to_owned(),
            ByteString(kubeconfig.expose_secret().as_bytes().to_vec()),
        )])),
        ..Secret::default()
    }
}

/// The cluster whose credential Roadstead wrote into this Secret; `None` for Secrets of users.
pub fn cluster(secret: &Secret) -> Option<&str> {
    secret.labels().get(CREDENTIAL_LABEL).map(String::as_str)
}

/// The validity of the credential, if the annotations show it.
pub fn lifetime(secret: &Secret) -> Option<Lifetime> {
    let time = |key: &str| secret.annotations().get(key)?.parse::<Timestamp>().ok();
    Some(Lifetime {
        issued: time(ISSUED_AT)?,
        expires: time(EXPIRES_AT)?,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use roadstead_kubeio::connect::{Credential, Endpoint};
    use secrecy::{ExposeSecret as _, SecretString};

    use super::{KEY, Lifetime, build, cluster, fingerprint, lifetime, load, read, render};
    use roadstead_api::kueue::v1beta2::{ClusterProfileReference, ClusterSource, KubeConfig, LocationType};
    use roadstead_core::cluster::Reason;

    use crate::check::{BYTES_MAX, Rules, check};

    const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn endpoint(credential: Credential) -> Endpoint {
        Endpoint {
            server: "https://east.example:6443".to_owned(),
            authority: CA.to_owned(),
            credential,
        }
    }

    fn secret(bytes: &[u8]) -> Secret {
        Secret {
            data: Some([(KEY.to_owned(), ByteString(bytes.to_vec()))].into()),
            ..Secret::default()
        }
    }

    /// Spec: multikueue 2.2, 11.8
    #[test]
    fn missing_secret_and_missing_key_are_named_in_the_reference_words() {
        let refusal = read("east", None).unwrap_err();
        assert_eq!(refusal.reason, Reason::BadKubeConfig);
        assert_eq!(refusal.message, "Secret \"east\" not found");
        let refusal = read("east", Some(&Secret::default())).unwrap_err();
        assert_eq!(refusal.reason.as_str(), "BadKubeConfig");
        assert_eq!(refusal.message, "key \"kubeconfig\" not found in secret \"east\"");
    }

    /// Spec: safety 5 S6
    #[test]
    fn oversized_secret_is_refused_before_it_is_parsed() {
        assert_eq!(
            read("east", Some(&secret(&vec![b'a'; BYTES_MAX]))).unwrap().len(),
            BYTES_MAX
        );
        let refusal = read("east", Some(&secret(&vec![b'a'; BYTES_MAX + 1]))).unwrap_err();
        assert_eq!(
            refusal.message,
            "key \"kubeconfig\" in secret \"east\" is larger than 256 KiB"
        );
    }

    fn source(location: &str, location_type: LocationType) -> ClusterSource {
        ClusterSource {
            kube_config: Some(KubeConfig {
                location: location.to_owned(),
                location_type,
            }),
            cluster_profile_ref: None,
        }
    }

    /// Unlike the anchor: no file is read or watched, not even below its prefix.
    ///
    /// Spec: multikueue 11.9, 11.13, 11.14
    #[test]
    fn cluster_leads_to_the_endpoint_in_its_secret_and_never_to_a_file() {
        let text = render("east", &endpoint(Credential::Token(SecretString::from("t"))));
        let there = secret(text.expose_secret().as_bytes());
        let find = |name: &str| (name == "s").then_some(&there);
        let found = load(&source("s", LocationType::Secret), find, &Rules::default()).unwrap();
        let same = endpoint(Credential::Token(SecretString::from("t")));
        assert_eq!(fingerprint(&found), fingerprint(&same));
        let other = endpoint(Credential::Token(SecretString::from("u")));
        assert_ne!(fingerprint(&found), fingerprint(&other));

        for path in [
            "s",
            "/etc/multikueue/kubeconfigs/east",
            "/etc/multikueue/kubeconfigs/../east",
            "/etc/multikueue/kubeconfigs-of-others/east",
            "/etc/passwd",
            "",
        ] {
            let of_file = source(path, LocationType::Path);
            let refusal = load(&of_file, |_| Some(&there), &Rules::default()).unwrap_err();
            assert_eq!(refusal.reason, Reason::BadKubeConfig);
            assert_eq!(refusal.message, "kubeconfig path is not under the allowed prefix");
        }
    }

    /// Spec: multikueue 2.2, 11.15, 11.16
    #[test]
    fn cluster_that_is_described_by_a_profile_is_refused() {
        let profile = ClusterSource {
            kube_config: None,
            cluster_profile_ref: Some(ClusterProfileReference {
                name: "east".to_owned(),
            }),
        };
        let none = |_: &str| None::<&Secret>;
        let refusal = load(&profile, none, &Rules::default()).unwrap_err();
        assert_eq!(refusal.reason.as_str(), "MultiKueueClusterProfileFeatureDisabled");
        assert_eq!(
            refusal.message,
            "MultiKueueClusterProfile feature gate is disabled"
        );
    }

    /// Spec: safety 5 S7
    #[test]
    fn secret_of_another_type_is_refused() {
        let mut other = secret(b"x");
        for good in [None, Some(""), Some("Opaque"), Some("federation/kubeconfig")] {
            other.type_ = good.map(str::to_owned);
            assert_eq!(read("east", Some(&other)).unwrap(), b"x");
        }
        other.type_ = Some("kubernetes.io/service-account-token".to_owned());
        assert_eq!(
            read("east", Some(&other)).unwrap_err().message,
            "secret \"east\" must have type Opaque or federation/kubeconfig"
        );
    }

    #[test]
    fn rendered_kubeconfig_is_accepted_and_comes_back_unchanged() {
        let text = render(
            "east",
            &endpoint(Credential::Token(SecretString::from("a.b-c_d"))),
        );
        let back = check(text.expose_secret().as_bytes(), &Rules::default()).unwrap();
        assert_eq!(back.server, "https://east.example:6443");
        assert_eq!(back.authority, CA);
        assert!(matches!(back.credential, Credential::Token(token) if token.expose_secret() == "a.b-c_d"));

        let pair = Credential::ClientCertificate {
            certificate: CA.to_owned(),
            key: SecretString::from("-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n"),
        };
        let text = render("east", &endpoint(pair));
        let back = check(text.expose_secret().as_bytes(), &Rules::default()).unwrap();
        assert!(
            matches!(back.credential, Credential::ClientCertificate { key, .. } if key.expose_secret().contains("BBBB"))
        );
    }

    #[test]
    fn rendered_kubeconfig_cannot_be_bent_by_a_strange_name() {
        let name = "x\"\nusers: [{name: y, user: {exec: {command: z}}}]\n#";
        let text = render(name, &endpoint(Credential::Token(SecretString::from("t"))));
        assert!(check(text.expose_secret().as_bytes(), &Rules::default()).is_ok());
    }

    #[test]
    fn built_secret_says_whose_credential_it_holds_and_how_long() {
        let times = Lifetime {
            issued: "2026-11-21T10:00:00Z".parse().unwrap(),
            expires: "2026-11-21T11:00:00Z".parse().unwrap(),
        };
        let secret = build(
            "roadstead-east",
            "kueue-system",
            "east",
            &SecretString::from("text"),
            times,
        );
        assert_eq!(cluster(&secret), Some("east"));
        assert_eq!(lifetime(&secret), Some(times));
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
        assert_eq!(read("roadstead-east", Some(&secret)).unwrap(), b"text");
        assert_eq!(cluster(&Secret::default()), None);
        assert_eq!(lifetime(&Secret::default()), None);
    }
}
