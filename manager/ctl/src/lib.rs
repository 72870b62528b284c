//! The command `roadstead`, also known as `kubectl roadstead`.
//!
//! It **never** writes a credential to disk, prints one, or waits without a limit. Data goes to stdout, progress to
//! stderr; every failure says what, why, and the next command ([`failure::Failure`]).
//!
//! Reading order: [`args`], [`install`], [`doctor`], [`cluster`] (`join`, `list`, `cordon`, `uncordon`, `drain`, `give-up`,
//! `leave`), [`explain`], [`get`], [`top`], [`describe`], [`events`], [`sync`], [`config`] (`check`), [`completion`], [`man`],
//! [`access`] (clients of both clusters), [`output`], [`failure`].

pub mod access;
pub mod args;
pub mod cluster;
pub mod completion;
pub mod config;
pub mod describe;
pub mod doctor;
mod engines;
mod event;
pub mod events;
pub mod explain;
pub mod failure;
pub mod get;
pub mod install;
pub mod man;
mod objects;
pub mod output;
pub mod sync;
mod table;
pub mod top;
mod watch;

#[cfg(test)]
mod documents;
