//! The frame of every Roadstead process: arguments, configuration file, logs, metrics, health probes, TLS, the webhook server,
//! and an orderly end.
//!
//! It **never** talks to Kubernetes. The crate with the client stores the Secret and injects the CA bundle; it takes only the
//! pure parts (which certificate to renew, the form of a Secret) from here.
//!
//! Reading order: [`args`], [`config`], [`telemetry`], [`shutdown`], [`listen`], [`health`], [`metrics`], [`tls`],
//! [`webhook`], [`delegated`].
//!
//! ```
//! use roadstead_serve::{args::GateSetting, config};
//!
//! let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetrics: {bindAddres: ':0'}\n";
//! let error = config::parse("kueue.yaml", text, &[] as &[GateSetting], "kueue-system").unwrap_err();
//! assert!(error.to_string().contains("kueue.yaml:3:"));
//! assert!(error.to_string().contains("metrics.bindAddres"));
//! ```

pub mod args;
pub mod config;
pub mod delegated;
pub mod exit;
pub mod health;
pub mod listen;
pub mod metrics;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod webhook;
