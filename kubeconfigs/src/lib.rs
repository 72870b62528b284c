//! Registration of worker clusters: which kubeconfigs are accepted, and the worker accounts that Roadstead makes itself.
//!
//! A kubeconfig is a program in disguise: it can name a command to run, a file to read, a proxy to use, or an identity to assume. This
//! crate parses one without doing any of that. It returns an [`Endpoint`](roadstead_kubeio::connect::Endpoint) that holds only an https
//! address, a certificate authority and an inline credential.
//!
//! It will **never** hand untrusted bytes to another kubeconfig loader, run a command, read a file, or put a token, key
//! or certificate into an error, a log line or a `Debug` output.
//!
//! Reading order: [`check`] (bytes to endpoint), [`place`], [`secret`] (the Secrets that hold kubeconfigs), [`account`] (the account of Roadstead on a
//! worker, and the renewal of its token).
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
pub mod place;
pub mod secret;
