//! Tokens of the account: created with a limited lifetime, verified before use, and renewed long before they expire.
//!
//! Invariant: a renewal replaces the old credential only after the worker's API server has confirmed that the new one belongs to the same
//! account. After a failure the Secret holds the old credential, or the confirmed new one if the answer to the write was lost.

use std::time::Duration;

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_core::moment::later;
use roadstead_kubeio::connect::{self, Credential, Endpoint};
use roadstead_kubeio::write::{self, Written};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::check::{Refusal, Rules, check};
use crate::secret::{self, Lifetime};

/// Shortest lifetime that API servers grant.
pub const LIFETIME_MIN: Duration = Duration::from_mins(10);
/// Longest lifetime that is requested, so that no token is eternal. The administrator is warned about a larger setting when the file is
/// read. Spec: safety 5 S10.
pub const LIFETIME_MAX: Duration = Duration::from_hours(24);
/// Part of its lifetime after which a token is renewed at the earliest. Spec: safety 6.
const RENEW_FROM: f64 = 0.5;
/// Part of its lifetime after which a token is renewed at the latest.
const RENEW_UNTIL: f64 = 0.7;
const USER_AGENT: &str = "roadstead-credentials";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Why a token could not be requested, verified or stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The worker's API server did not hand out a token.
    #[error("asking for a token for service account {account} failed: {why}")]
    Request {
        /// The account, as `namespace/name`.
        account: String,
        /// The error of the API server or of the transport.
        why: String,
    },
    /// The API server answered without a token or without an expiry time.
    #[error("the answer to the token request for service account {account} holds no bounded token")]
    Unbounded {
        /// The account, as `namespace/name`.
        account: String,
    },
    /// The credential could not be tested.
    #[error("asking {server} for the identity of the credential failed: {why}")]
    Review {
        /// The server that was asked.
        server: String,
        /// The error of the API server or of the transport.
        why: String,
    },
    /// The credential belongs to another account.
    #[error("the credential belongs to {found:?}, expected {expected:?}")]
    Stranger {
        /// The user name that the API server reported.
        found: String,
        /// The expected user name.
        expected: String,
    },
    /// The credential does not belong to a service account, so it cannot renew itself.
    #[error("the credential belongs to {found:?}, which is not a service account")]
    NotRenewable {
        /// The user name that the API server reported.
        found: String,
    },
    /// The Secret was not written by Roadstead.
    #[error("secret {name:?} has no label {label}, so its credential is not ours to renew", label = secret::CREDENTIAL_LABEL)]
    NotOurs {
        /// Name of the Secret.
        name: String,
    },
    /// The kubeconfig in the Secret is refused.
    #[error("the kubeconfig in use is refused")]
    Refused {
        /// The reason.
        #[source]
        source: Refusal,
    },
    /// No client could be built.
    #[error("building a client with the new credential failed")]
    Connect {
        /// The reason.
        #[source]
        source: connect::Error,
    },
    /// The Secret was not replaced, or the answer to the write was lost, so that the Secret may hold the new credential.
    #[error("writing secret {name:?} failed: {why}")]
    Write {
        /// Name of the Secret.
        name: String,
        /// The error of the API server, or what happened to the Secret.
        why: String,
    },
}

/// A token and its lifetime. `Debug` does not show the token.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The bearer token.
    pub token: SecretString,
    /// When the token is valid.
    pub lifetime: Lifetime,
}

/// The terms of a renewal.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Rules that the kubeconfig in use must still meet.
    pub rules: Rules,
    /// The lifetime to request.
    pub lifetime: Duration,
    /// The present time.
    pub now: Timestamp,
}

/// The time to renew a credential: between 50 and 70 % of its lifetime, chosen by `jitter` (0 to 1) so that many clusters joined at once do
/// not renew at once. It is `now` when that time has passed or the times are invalid.
///
/// Spec: safety 6
pub fn plan_renewal(now: Timestamp, life: Lifetime, jitter: f64) -> Timestamp {
    let share = RENEW_FROM + (RENEW_UNTIL - RENEW_FROM) * jitter.clamp(0.0, 1.0);
    let seconds = life.expires.duration_since(life.issued).as_secs_f64() * share;
    SignedDuration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|wait| life.issued.checked_add(wait).ok())
        .unwrap_or(now)
        .max(now)
}

/// The same lifetime, beginning at `now` by the manager's clock. Why: the worker dates tokens by its own clock, which may be off, but the
/// manager decides when to renew them.
///
/// Spec: safety F18
fn by_our_clock(life: Lifetime, now: Timestamp) -> Lifetime {
    Lifetime {
        issued: now,
        expires: later(now, life.expires.duration_since(life.issued)),
    }
}

/// Whether more than half of the lifetime is left.
pub fn is_fresh(now: Timestamp, life: Lifetime) -> bool {
    let whole = life.expires.duration_since(life.issued);
    let left = life.expires.duration_since(now);
    whole.is_positive() && left > whole / 2
}

/// Asks the worker for a token for this service account.
pub async fn mint(
    worker: &Client,
    namespace: &str,
    name: &str,
    life: Duration,
    now: Timestamp,
) -> Result<Minted, Error> {
    let account = || format!("{namespace}/{name}");
    let seconds = life.clamp(LIFETIME_MIN, LIFETIME_MAX).as_secs();
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: i64::try_from(seconds).ok(),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(worker.clone(), namespace);
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(|error| Error::Request {
            account: account(),
            why: describe(&error),
        })?;
    let issued = answer.metadata.creation_timestamp.map_or(now, |time| time.0);
    answer
        .status
        .and_then(|status| Some((status.token?, status.expiration_timestamp?)))
        .map(|(token, expires)| Minted {
            token: token.into(),
            lifetime: Lifetime {
                issued,
                expires: expires.0,
            },
        })
        .ok_or_else(|| Error::Unbounded { account: account() })
}

/// The user name that the API server assigns to our requests.
pub async fn who_am_i(client: &Client, server: &str) -> Result<String, Error> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| Error::Review {
            server: server.to_owned(),
            why: describe(&error),
        })?;
    Ok(answer
        .status
        .and_then(|status| status.user_info?.username)
        .unwrap_or_default())
}

/// Connects with the endpoint's credential and verifies that it belongs to `username`.
pub async fn prove(endpoint: &Endpoint, username: &str) -> Result<Client, Error> {
    let client = connect::worker(endpoint, USER_AGENT).map_err(|source| Error::Connect { source })?;
    let found = who_am_i(&client, &endpoint.server).await?;
    if found == username {
        Ok(client)
    } else {
        Err(Error::Stranger {
            found,
            expected: username.to_owned(),
        })
    }
}

/// Replaces the credential in `secret` by a new one of the same account, and returns the written Secret.
///
/// It requests a token through `worker`, a client with the current credential, and verifies it on the worker. Then it writes the Secret on
/// the manager; if another client has written the Secret meanwhile, that is an error.
///
/// *Errors*: the step that failed. Before the write the Secret still holds the old credential; after [`Error::Write`] it may hold the new
/// one. Try again with growing pauses.
pub async fn renew_secret(
    manager: &Client,
    worker: &Client,
    secret: &Secret,
    terms: &Terms,
) -> Result<Secret, Error> {
    let name = secret.name_any();
    let Some(cluster) = secret::cluster(secret) else {
        return Err(Error::NotOurs { name });
    };
    let current = secret::read(&name, Some(secret))
        .and_then(|bytes| check(bytes, &terms.rules))
        .map_err(|source| Error::Refused { source })?;
    let username = who_am_i(worker, &current.server).await?;
    let Some((home, account)) = username
        .strip_prefix(SERVICE_ACCOUNT_PREFIX)
        .and_then(|rest| rest.split_once(':'))
    else {
        return Err(Error::NotRenewable { found: username });
    };
    let minted = mint(worker, home, account, terms.lifetime, terms.now).await?;
    let life = by_our_clock(minted.lifetime, terms.now);
    let endpoint = Endpoint {
        credential: Credential::Token(minted.token),
        ..current
    };
    prove(&endpoint, &username).await?;

    let kubeconfig = secret::render(cluster, &endpoint);
    let patch = json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": {
                secret::ISSUED_AT: life.issued.to_string(),
                secret::EXPIRES_AT: life.expires.to_string(),
            },
        },
        "data": {
            secret::KEY: base64::engine::general_purpose::STANDARD.encode(kubeconfig.expose_secret()),
        },
    });
    let namespace = secret.namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(manager.clone(), &namespace);
    let why = match write::patch(&secrets, &name, &patch).await {
        Written::Done(written) => return Ok(*written),
        Written::Gone => "it is gone".to_owned(),
        Written::Conflict | Written::AlreadyExists => "another client has written it".to_owned(),
        Written::Refused(why) | Written::Unclear(why) => why,
    };
    Err(Error::Write { name, why })
}

/// The error without the content of the answer: a parser's message may quote a token.
fn describe(error: &kube::Error) -> String {
    if matches!(error, kube::Error::SerdeError(_)) {
        "the answer is not what was asked for".to_owned()
    } else {
        write::describe(error)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::{Strategy as _, prop_assert, proptest};

    use super::{Minted, by_our_clock, is_fresh, plan_renewal};
    use crate::secret::Lifetime;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn hour() -> Lifetime {
        Lifetime {
            issued: at(0),
            expires: at(3600),
        }
    }

    /// Spec: safety 6
    #[test]
    fn renewal_falls_between_half_and_seven_tenths_of_the_life() {
        assert_eq!(plan_renewal(at(0), hour(), 0.0), at(1800));
        assert_eq!(plan_renewal(at(0), hour(), 0.5), at(2160));
        assert_eq!(plan_renewal(at(0), hour(), 1.0), at(2520));
        assert_eq!(plan_renewal(at(0), hour(), 7.0), at(2520));
    }

    #[test]
    fn renewal_that_is_overdue_or_makes_no_sense_is_now() {
        assert_eq!(plan_renewal(at(3000), hour(), 0.0), at(3000));
        let backwards = Lifetime {
            issued: at(3600),
            expires: at(0),
        };
        assert_eq!(plan_renewal(at(4000), backwards, 0.5), at(4000));
        assert_eq!(plan_renewal(at(0), hour(), f64::NAN), at(0));
    }

    proptest! {
        /// Spec: safety 6
        #[test]
        fn renewal_is_never_in_the_past_and_never_after_the_last_third(
            life in 600_i64..86_400, now in 0_i64..40_000, jitter in (0_u32..=1000).prop_map(|j| f64::from(j) / 1000.0)
        ) {
            let lifetime = Lifetime { issued: at(0), expires: at(life) };
            let when = plan_renewal(at(now), lifetime, jitter);
            prop_assert!(when >= at(now));
            prop_assert!(when == at(now) || when.as_second() - at(0).as_second() <= life * 7 / 10 + 1);
        }
    }

    /// Spec: safety F18
    #[test]
    fn a_token_of_a_worker_whose_clock_is_off_is_renewed_when_half_of_its_life_is_over_here() {
        for hours in [-2, 0, 2] {
            let there = Lifetime {
                issued: at(hours * 3600),
                expires: at((hours + 1) * 3600),
            };
            let life = by_our_clock(there, at(5));
            assert_eq!(plan_renewal(at(5), life, 0.0), at(1805), "{hours} h");
        }
    }

    #[test]
    fn token_is_fresh_during_the_first_half_of_its_life() {
        assert!(is_fresh(at(1799), hour()));
        assert!(!is_fresh(at(1800), hour()));
        assert!(!is_fresh(at(9999), hour()));
        let empty = Lifetime {
            issued: at(0),
            expires: at(0),
        };
        assert!(!is_fresh(at(-5), empty));
    }

    /// Spec: safety 1 I8
    #[test]
    fn debug_output_does_not_show_the_token() {
        let minted = Minted {
            token: "canary".to_owned().into(),
            lifetime: hour(),
        };
        assert!(!format!("{minted:?}").contains("canary"));
    }
}
