//! A Kubernetes API server in memory: strict and seeded.
//!
//! It serves the simulation (as a tower service under paused time), the tests and the demo (over HTTPS on loopback). Generated
//! request traces compare its answers with a real kube-apiserver's; `DIFFERENCES.md` beside this crate lists the known
//! differences. A request for a feature that it does not have is answered with 501 and a sentence.
//!
//! It never reads a clock or a random source of its own: time and the seed come from [`Options`]. It has no background work:
//! garbage is collected when [`Server::collect_garbage`] is called. It keeps nothing on disk.
//!
//! Reading order: [`store`](self) (versions), `kinds` (what there is), `schema` and `decode` (shapes), `managed` (field
//! ownership), `write`, `read`, `delete` (the verbs), `server` (routing).
//!
//! ```
//! use roadstead_apiserver::{Clock, Options, Server, User};
//!
//! let clock = Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
//! let server = Server::new(Options::new(clock, 42));
//! let service = server.service(User::admin());
//! assert!(server.version() > 1);
//! # drop(service);
//! ```

mod admission;
mod authenticate;
mod bootstrap;
mod builtin;
mod caller;
mod clock;
mod collect;
mod custom;
mod decode;
mod delete;
mod discovery;
mod failure;
mod https;
mod json;
mod kinds;
mod list;
mod listen;
mod managed;
mod names;
mod openapi;
mod patch;
mod place;
mod protobuf;
mod rbac;
mod read;
mod request;
mod schema;
mod selector;
mod server;
mod service;
mod store;
mod stored;
mod subresources;
mod table;
mod tokens;
mod write;

pub use caller::{Caller, Nobody, WebhookCall};
pub use clock::Clock;
pub use collect::{COLLECTOR, Collected};
pub use https::HttpsCaller;
pub use listen::{Error as ListenError, Listening};
pub use request::User;
pub use server::{Asked, Authorization, Body, Options, RESTORER, Server, Snapshot};
pub use service::{ApiService, Error as ServiceError};
pub use store::Change;
pub use stored::Stored;

/// Where definitions of custom resources are stored.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
