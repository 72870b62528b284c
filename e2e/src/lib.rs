//! Kubernetes control planes on loopback, real or embedded, for tests, the demo and measurements.
//!
//! [`ControlPlane::start`] brings up etcd and kube-apiserver as ordinary processes of this user, and on request
//! kube-controller-manager, kube-scheduler and kwok (which plays the kubelet of as many nodes as asked for);
//! [`Federation::start`] brings up several at once. Binaries are found or built by [`binaries`]. With
//! [`options::Kind::Embedded`] all of it is played in this process, which needs no binary at all. It needs no container
//! engine, no root and no fixed port. Even if the owning process is killed by SIGKILL, its processes end and their files are
//! removed.
//!
//! What it will never do: listen beyond loopback, change the user's kubeconfig, or keep data between runs.
//!
//! Reading order: [`options`], [`plane`], [`federation`], [`link`], [`audit`], then [`binaries`] and the private
//! `process` (a process that cannot outlive its owner).
//!
//! ```no_run
//! # async fn example() -> Result<(), roadstead_e2e::plane::Error> {
//! use roadstead_e2e::{ControlPlane, Node, Options};
//!
//! let plane = ControlPlane::start(Options::complete("worker-a").with_node(Node::new("node-1", "8", "32Gi"))).await?;
//! let client = plane.client()?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```

pub mod answerer;
pub mod audit;
pub mod binaries;
pub mod conformance;
pub mod demo;
pub mod federation;
pub mod interop;
mod kubeconfig;
pub mod link;
pub mod observer;
pub mod options;
pub mod perf;
mod pki;
pub mod plane;
mod port;
mod process;
pub mod progress;
pub mod stage;

pub use federation::Federation;
pub use link::Link;
pub use options::{Node, Options};
pub use plane::ControlPlane;
pub use progress::Progress;
