//! The README's first command: a whole federation on this machine, jobs, an accident, and a card with the result.

use std::process::ExitCode;

use clap::Parser;
use roadstead_ctl as _;
use roadstead_e2e::demo::{self, Args};
use roadstead_manager as _;
use roadstead_worker as _;

#[tokio::main]
async fn main() -> ExitCode {
    demo::main(Args::parse()).await
}
