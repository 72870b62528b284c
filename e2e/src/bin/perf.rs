//! Measures on this machine. Where the machine matters, figures are ratios to a bare client that sends the same writes in
//! the same run.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use roadstead_e2e::perf::{self, Args};

// Why: the product's programs use this allocator, and `perf engine` measures their code in this process.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    perf::main(Args::parse()).await
}
