//! What the supervisors of the workers share.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::name::ClusterName;
use roadstead_engine::caches::Templates;
use roadstead_engine::clock::Clock;
use roadstead_jobs::JobKind;
use roadstead_kubeconfigs::check::Rules;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use tokio_util::sync::CancellationToken;

use super::lease::Lessor;
use super::registry::Registry;
use super::told::Told;
use super::{Dial, Remote, Secrets};
use crate::metrics::Metrics;

/// How often a lost worker is looked for between the attempts of the back-off table, and how often a failed write is repeated.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// The texts of API servers about a kind that they do not serve.
const NOT_SERVED: [&str; 2] = ["404 page not found", "could not find the requested resource"];

/// The text of API servers about a credential that is unknown, expired or withdrawn.
pub(super) const UNAUTHORIZED: &str = "Unauthorized";
/// The same in a sentence for the user.
pub(super) const NOT_ACCEPTED: &str = "the API server does not accept the credential (401 Unauthorized): it has expired, or its account \
                            was deleted; run \"roadstead cluster join\" for this cluster again, or put a valid kubeconfig \
                            into its Secret";

/// A question about a cluster.
pub(crate) type Ask = Box<dyn Fn(&ClusterName) -> bool + Send + Sync>;
/// Starts the work for a new cluster; that work ends when the token is cancelled.
pub(crate) type Greet = Box<dyn Fn(&Arc<Remote>, CancellationToken) + Send + Sync>;

/// What the supervisors share.
pub(crate) struct Fleet {
    pub(crate) client: Client,
    pub(crate) clusters: Arc<Cache<MultiKueueCluster>>,
    pub(crate) secrets: Secrets,
    pub(crate) namespace: String,
    /// Where connected clusters are found.
    pub(crate) registry: Arc<Registry>,
    pub(crate) kinds: Vec<&'static dyn JobKind>,
    /// The pod templates, shared between all clusters.
    pub(crate) templates: Arc<Templates>,
    /// Label selector of our objects on workers.
    pub(crate) ours: String,
    /// What is accepted in a kubeconfig.
    pub(crate) rules: Rules,
    pub(crate) lessor: Arc<Lessor>,
    /// How a worker's client is made.
    pub(crate) dial: Dial,
    /// Told about every gain and loss of a connection.
    pub(crate) changed: Arc<Dirty<ClusterName>>,
    /// Called once for each new cluster, before it is connected.
    pub(crate) greet: Greet,
    /// Whether a cluster holds nothing of ours any more.
    pub(crate) is_free: Ask,
    /// Locked while it is decided to which cluster a name leads, so that two names cannot get the same cluster at once.
    pub(crate) naming: tokio::sync::Mutex<()>,
    pub(crate) metrics: Metrics,
    /// What was logged of each cluster.
    pub(crate) told: Arc<Told>,
    pub(crate) clock: Clock,
    #[cfg(feature = "bugbank")]
    pub(crate) policy: roadstead_core::dispatch::Policy,
}

/// Why a kind cannot be watched, in a text that helps. The text of an API server about a kind that it does not serve names no
/// kind. Its text about an expired or withdrawn credential is one word.
pub(super) fn of_kind(kind: &str, why: String) -> String {
    if NOT_SERVED.iter().any(|words| why.contains(words)) {
        format!("{kind} is not served there ({why}): install its CustomResourceDefinition")
    } else if why == UNAUTHORIZED {
        NOT_ACCEPTED.to_owned()
    } else {
        why
    }
}
