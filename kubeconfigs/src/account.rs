//! The account of Roadstead on a worker cluster: its rights, and how its token is created and renewed.
//!
//! Invariant: the worker's API server is asked for the owner of a token (`SelfSubjectReview`). It is never taken from a request or an
//! annotation, so that a renewal cannot change to another identity (`spec/safety.md S12`).

pub mod rights;
pub mod token;
