//! What tests compare the product with, and a world in which everything goes wrong.
//!
//! This crate **never** ends up in a program: it is for tests alone. [`reference`](mod@reference) and [`audit`] are slow and
//! obvious on purpose, and import nothing of what they judge, so that a mistake is not made twice; [`sim`] runs the product
//! itself and leaves the judging to them.

pub mod audit;
pub mod reference;
pub mod sim;
