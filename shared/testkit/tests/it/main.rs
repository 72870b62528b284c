//! The product against slow and obvious models, and in runs that no seed makes.

#![expect(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod burst;
mod comes;
mod quota;
mod unanswered;
