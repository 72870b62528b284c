//! What the webhooks of a running process let through and refuse, asked through a real API server.
//!
//! Rules of the schema are not looked at here. Objects are mostly created in dry-run: the server asks the webhooks all the
//! same, and nothing stays behind.

mod bad_input;
mod ground;
mod jobs;
mod queues;
mod serving;
mod workloads;
mod wrappers;
