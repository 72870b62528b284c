//! Roadstead and Kueue together on real control planes: each manages the other's workers.
//!
//! The user provides Kueue: its controller's binary and the manifest of its release; without them it is built from its published
//! module. `interop` plays the same scenes in both directions and prints a line with the result of each.
//!
//! Reading order: this file, `scene` (the clusters), `room` (one namespace and queue, and its helpers),
//! `report` (how a scene ends), `kueue_workers` and `kueue_manager` (the two directions), then the scenes: `ends`, `stops`,
//! `waits`, `moves`, `kills`; `kind` and `kinds` for jobs of other kinds.

mod account;
mod ends;
mod history;
mod kills;
mod kind;
mod kinds;
mod kueue_manager;
mod kueue_workers;
mod moves;
mod report;
mod room;
mod scene;
mod stops;
mod waits;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};

use crate::Progress;
use crate::stage::Kueue;
pub use kind::Kind;
use report::Report;
use scene::Gates;

/// Plays Roadstead and Kueue together, each once as the manager of the other's workers
#[derive(Debug, Clone, Parser)]
#[command(name = "interop")]
pub struct Args {
    /// Kueue's controller, as built from its source or taken out of its image [default: built from its published module]
    #[arg(long, value_name = "FILE", requires = "manifests")]
    pub kueue: Option<PathBuf>,
    /// The manifest of the same release (`manifests.yaml`); only kinds and webhook configurations are taken from it
    #[arg(long, value_name = "FILE", requires = "kueue")]
    pub manifests: Option<PathBuf>,
    /// The kind of the jobs; only Jobs have all scenes
    #[arg(long, value_enum, default_value_t)]
    pub kind: Kind,
    /// Which of the two manages the workers of the other; both directions, one after the other, if not given
    #[arg(long, value_enum)]
    pub direction: Option<Direction>,
    /// Only the scenes whose names contain one of these
    #[arg(long, value_delimiter = ',', value_name = "TEXT")]
    pub only: Vec<String>,
    /// Gates for the configuration of all processes, as NAME=true or NAME=false
    #[arg(long, value_delimiter = ',', value_name = "GATES", value_parser = parse_gate)]
    pub feature_gates: Vec<(String, bool)>,
    /// Where the logs of all processes are kept
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
}

fn parse_gate(text: &str) -> Result<(String, bool), String> {
    let (name, value) = text.split_once('=').ok_or("no `=` in it")?;
    let value = value.parse().map_err(|error| format!("{value}: {error}"))?;
    Ok((name.to_owned(), value))
}

/// Which of the two manages the workers of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Roadstead manages a worker of Kueue and one of its own
    KueueWorkers,
    /// Kueue manages two workers of Roadstead
    KueueManager,
}

/// Plays the scenes and prints the results. Fails if a scene fails.
pub async fn main(args: Args) -> ExitCode {
    match play(&args).await {
        Ok(report) => report.close(),
        Err(error) => {
            // Why: a closed standard error must not hide the exit code.
            let _ = writeln!(std::io::stderr().lock(), "interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn play(args: &Args) -> anyhow::Result<Report> {
    let kueue = match (&args.kueue, &args.manifests) {
        (Some(controller), Some(manifests)) => Kueue::read(controller, manifests)?,
        (None, _) | (_, None) => Kueue::built(&Progress::stderr()).await?,
    };
    let kueue = Arc::new(kueue);
    let gates: Gates = args.feature_gates.iter().cloned().collect();
    let mut report = Report::new(args.only.clone());
    let plays = |direction| args.direction.is_none_or(|only| only == direction);
    if plays(Direction::KueueWorkers) {
        let scene = kueue_workers::set_up(&kueue, &gates, args.kind).await?;
        match args.kind.facts() {
            None => kueue_workers::play(&scene, &mut report).await,
            Some(facts) => kinds::play(&scene, facts, &mut report).await,
        }
        scene.keep_logs(args.logs.as_deref())?;
    }
    if plays(Direction::KueueManager) {
        let scene = kueue_manager::set_up(&kueue, &gates, args.kind).await?;
        match args.kind.facts() {
            None => kueue_manager::play(&scene, &mut report).await,
            Some(facts) => kinds::play(&scene, facts, &mut report).await,
        }
        scene.keep_logs(args.logs.as_deref())?;
    }
    Ok(report)
}
