//! The command `roadstead`, also known as `kubectl roadstead`.
//!
//! It **never** writes a credential to disk, prints one, or waits without a limit. Data goes to stdout, progress to
//! stderr; every failure says what, why, and the next command ([`failure::Failure`]).
//!
//! Reading order: [`args`], [`install`], [`doctor`], [`cluster`] (`join`, `list`, `cordon`, `uncordon`, `drain`, `give-up`,
//! `leave`), [`explain`], [`sync`], [`config`] (`check`), [`access`] (clients of both clusters), [`output`], [`failure`].

pub mod access;
pub mod args;
pub mod cluster;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod failure;
pub mod install;
pub mod output;
pub mod sync;

#[cfg(test)]
mod documents;
