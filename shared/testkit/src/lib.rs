//! Models that tests compare the product with, and a simulated world with faults.
//!
//! This crate **never** becomes part of a program: it is for tests alone. [`reference`](mod@reference) and [`audit`] are slow and
//! obvious on purpose, and import nothing of the code that they judge, so that a mistake is not made twice. [`sim`] runs the
//! product itself and leaves the judgement to them.

pub mod audit;
pub mod reference;
pub mod sim;
