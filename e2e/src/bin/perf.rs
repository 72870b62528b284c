//! Measures on this machine; figures are ratios to a bare client that sends the same writes in the same run wherever the
//! machine matters.

use std::process::ExitCode;

use clap::Parser;
use roadstead_e2e::perf::{self, Args};

#[tokio::main]
async fn main() -> ExitCode {
    perf::main(Args::parse()).await
}
