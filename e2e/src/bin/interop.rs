//! Runs Roadstead and Kueue together, each once as the manager of the other's workers, and prints the results.

use std::process::ExitCode;

use clap::Parser;
use roadstead_e2e::interop::{self, Args};

#[tokio::main]
async fn main() -> ExitCode {
    interop::main(Args::parse()).await
}
