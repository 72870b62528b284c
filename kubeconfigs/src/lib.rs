//! Registration of worker clusters: which kubeconfigs are accepted, and the worker accounts that Roadstead makes itself.
//!
//! A kubeconfig is a program in disguise: it can name a command to run, a file to read, a proxy to go through, an
//! identity to put on. This crate takes one apart without ever doing any of that, and gives back an
//! [`Endpoint`](roadstead_kubeio::connect::Endpoint) that holds only an https address, a certificate authority and an
//! inline credential.
//!
//! It will **never** hand untrusted bytes to another kubeconfig loader, run a command, read a file, or put a token, key
//! or certificate into an error, a log line or a `Debug` output.
//!
//! Reading order: [`check`] (bytes to endpoint), [`secret`] (where kubeconfigs lie), [`account`] (who Roadstead is on a
//! worker, and how its token stays fresh).
//!
//! ```
//! use roadstead_kubeconfigs::check::{Rules, check};
//!
//! let file = b"users: [{name: me, user: {exec: {command: /bin/sh}}}]";
//! let refusal = check(file, &Rules::default()).unwrap_err();
//! assert_eq!(refusal.message, "exec plugins are not allowed");
//! ```

pub mod account;
pub mod check;
pub mod secret;
