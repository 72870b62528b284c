//! What tests compare the product with.
//!
//! This crate **never** ends up in a program: it is for tests alone. It is slow and obvious on purpose, and imports nothing of
//! what it judges, so that a mistake is not made twice.

pub mod audit;
pub mod reference;
