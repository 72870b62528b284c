//! The `roadstead-manager` process.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use roadstead_serve::args::Args;

/// Federates batch jobs: one queue in front of many worker clusters
#[derive(Parser)]
#[command(name = "roadstead-manager", version)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

// Why: the manager mostly allocates, to read and compare objects in several threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    roadstead_engine::host::main("roadstead-manager", roadstead_manager::run(&cli.args))
}
