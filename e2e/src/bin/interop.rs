//! Plays Roadstead and Kueue together, each once as the manager of the other's workers, and says what was seen.

use std::process::ExitCode;

use clap::Parser;
use roadstead_e2e::interop::{self, Args};

#[tokio::main]
async fn main() -> ExitCode {
    interop::main(Args::parse()).await
}
