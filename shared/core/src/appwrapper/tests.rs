//! The rules, one by one, and then what holds for any history.

mod building;
mod deletion;
mod faults;
mod histories;
mod lifecycle;
mod world;
