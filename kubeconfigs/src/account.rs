//! The account that Roadstead has on a worker cluster: what it may do there, and how its token is made and renewed.
//!
//! Invariant: whoever a token belongs to is asked from the worker's API server (`SelfSubjectReview`), never taken from a
//! request or an annotation, so that a renewal cannot slide into another identity (`spec/safety.md S12`).

pub mod rights;
pub mod token;
