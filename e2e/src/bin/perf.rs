//! Measures on this machine; figures are ratios to a bare client that sends the same writes in the same run wherever the
//! machine matters.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use roadstead_e2e::perf::{self, Args};

// Why: the allocator of the product's programs, whose decisions are measured in here too.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    perf::main(Args::parse()).await
}
