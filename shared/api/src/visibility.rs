//! The names and ports of the visibility API: an aggregated group, served by the manager and the workers.
//!
//! *Source*: `spec/api.md API-15`. Names are those of the reference's installations, so that our objects take the place of the
//! reference's.

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first; they are equal.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The subresource of queues that lists pending workloads.
pub const PENDING_WORKLOADS: &str = "pendingworkloads";
/// Name of the Service through which the API server reaches the process.
pub const SERVICE: &str = "kueue-visibility-server";
/// The port of that Service.
pub const SERVICE_PORT: u16 = 443;

/// The default port of the process; `visibilityServer.bindPort` changes it.
pub(crate) const PROCESS_PORT: u16 = 8082;
