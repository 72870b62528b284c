//! Names as types, so that a flavor can never be taken for a queue.
//!
//! Invariant: a name is never empty-checked here; the API server has validated it before it reaches core.

use std::fmt;
use std::sync::Arc;

/// Namespace and name of a namespaced object; prints as `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within it.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text; nothing is checked.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    )*};
}

names! {
    /// Name of a ClusterQueue.
    ClusterQueueName;
    /// Name of a Cohort.
    CohortName;
    /// Name of a ResourceFlavor.
    FlavorName;
    /// Name of a resource such as `cpu` or `nvidia.com/gpu`.
    ResourceName;
    /// Name of an AdmissionCheck.
    CheckName;
    /// Name of a MultiKueueCluster, which stands for a worker cluster.
    ClusterName;
    /// Name of a pod set within a Workload.
    PodSetName;
    /// `metadata.uid` of an object.
    Uid;
}
