//! The product's arithmetic against slow and obvious models.

#![expect(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod quota;
