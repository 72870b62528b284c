//! The `roadstead-worker` process.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use roadstead_serve::args::Args;

/// Admits batch jobs in one cluster: quotas, admission checks, provisioning
#[derive(Parser)]
#[command(name = "roadstead-worker", version)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

// Why: reading and comparing objects mostly allocates memory, from several threads at once.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    roadstead_engine::host::main("roadstead-worker", roadstead_worker::run(&cli.args))
}
