//! Objects that the webhooks of a running process accept and refuse, through a real API server.
//!
//! Rules of the schema are not tested here. Most objects are created in dry-run: the server calls the webhooks all the same, and
//! no object stays behind.

#![expect(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of cases: literals are handed over, and a table is as long as it is"
)]

mod bad_input;
mod ground;
mod jobs;
mod queues;
mod serving;
mod words;
mod workloads;
mod wrappers;
