//! Single rules first, then what holds for any history.

mod building;
mod deletion;
mod faults;
mod histories;
mod lifecycle;
mod world;
