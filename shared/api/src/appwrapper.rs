//! The group `workload.codeflare.dev`: several resources of a job that are queued, created and deleted as one.

pub mod v1beta2;
