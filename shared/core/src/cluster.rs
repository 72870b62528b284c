//! Worker clusters: which cluster it is, whether it is alive, and whether an administrator has given it up.

pub mod identity;
pub mod link;
pub mod word;

use jiff::SignedDuration;

pub use crate::condition::Active;
use crate::retry::RetryPolicy;

/// Delay between failed attempts: 5 s, doubled each time, at most 320 s. *Source*: `spec/multikueue.md 2.4`.
pub const CONNECT_RETRY: RetryPolicy = RetryPolicy {
    base: SignedDuration::from_secs(5),
    factor: 2,
    max: SignedDuration::from_secs(320),
    jitter: 0.0,
};
/// How long an attempt may take to open everything: 60 s, doubled each time, at most 600 s. *Source*: `spec/multikueue.md 2.4`.
pub const OPEN_TIMEOUT: RetryPolicy = RetryPolicy {
    base: SignedDuration::from_secs(60),
    factor: 2,
    max: SignedDuration::from_secs(600),
    jitter: 0.0,
};

/// Why a connection could not be made: the reason of condition `Active`. *Source*: `spec/multikueue.md 2.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Secret or its key is missing, or the file cannot be read.
    BadKubeConfig,
    /// The kubeconfig is refused or cannot be parsed.
    InsecureKubeConfig,
    /// The `ClusterProfile` is missing or gives no access.
    BadClusterProfile,
    /// The credentials obtained through the `ClusterProfile` are refused.
    BadRestConfig,
    /// `ClusterProfiles` are switched off.
    ClusterProfileDisabled,
    /// The worker's API server cannot be used.
    ClientConnectionFailed,
    /// Another manager uses the worker with our origin.
    ///
    /// Unlike the anchor: there the two delete each other's work (`spec/multikueue.md` 10.F36).
    OriginTaken,
    /// This manager has the worker under another name already.
    RegisteredTwice,
    /// The Secret leads to the management cluster itself.
    ManagementCluster,
    /// The Secret leads to another cluster than the one where jobs run.
    ClusterChanged,
}

impl Reason {
    /// The reason token of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadKubeConfig => "BadKubeConfig",
            Self::InsecureKubeConfig => "InsecureKubeConfig",
            Self::BadClusterProfile => "BadClusterProfile",
            Self::BadRestConfig => "BadRestConfig",
            Self::ClusterProfileDisabled => "MultiKueueClusterProfileFeatureDisabled",
            Self::ClientConnectionFailed => "ClientConnectionFailed",
            Self::OriginTaken => "OriginTaken",
            Self::RegisteredTwice => "RegisteredTwice",
            Self::ManagementCluster => "ManagementCluster",
            Self::ClusterChanged => "ClusterChanged",
        }
    }
}
