//! The demo: one manager, two workers, jobs of three tenants, a cable that is cut and mended, a node that
//! gets sick, and a closing card.
//!
//! Roadstead's processes are the real ones, and talk HTTPS. The control planes are embedded in this process unless real ones are
//! asked for; then everything is real except the pods. The card is computed by an [`crate::observer::Observer`] that reads every
//! cluster itself. *Source*: `spec/experience.md` 2.
//!
//! Reading order: this file (the arguments), `script` (the jobs), `play` (the run), `view` (the output), `card` (the result).

mod accident;
mod card;
mod evacuation;
mod play;
mod script;
mod view;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};

pub use card::Card;

use crate::options::Kind;

/// Environment variable with the first place where the harness looks for the programs of a control plane.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Allowed numbers of jobs: at least the named ones, at most as many as a user can still follow.
const JOBS: std::ops::RangeInclusive<i64> = 5..=500;

/// Shows a whole federation on this machine: no cluster, no container engine, no root, no network.
#[derive(Debug, Clone, Parser)]
#[command(name = "demo")]
pub struct Args {
    /// Which API servers to use; auto takes the embedded ones, unless --assets is given; beside real ones there are only Jobs and a group of pods
    #[arg(long, value_enum, default_value_t = ControlPlaneKind::Auto)]
    pub control_plane: ControlPlaneKind,
    /// Print the closing card as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Stay up at the end until Ctrl-C, and say how to look around
    #[arg(long)]
    pub keep: bool,
    /// Without the accidents: no cable is cut, and no node gets sick
    #[arg(long)]
    pub calm: bool,
    /// Write one administrator's kubeconfig per cluster into this directory; they are removed at the end
    #[arg(long, value_name = "DIR")]
    pub kubeconfigs: Option<PathBuf>,
    /// How many jobs to submit
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(JOBS))]
    pub jobs: u16,
    /// Look here first for etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok
    #[arg(long, value_name = "DIR")]
    pub assets: Option<PathBuf>,
}

/// Which API servers to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ControlPlaneKind {
    /// API servers inside this process, which also plays the controllers and nodes. Starts at once, needs no programs.
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, found on this machine or built once with Go.
    Real,
    /// Real ones if --assets says where they are, else embedded ones.
    Auto,
}

/// Runs the demo. The exit code is 0 if every job that can run has run and no invariant was broken.
pub async fn main(args: Args) -> ExitCode {
    match run(&args).await {
        Ok(card) if card.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // Why: a closed standard error must not hide the exit code.
            let _ = writeln!(std::io::stderr().lock(), "demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo to its end with all its output, and returns the card.
///
/// *Errors*: it could not be set up, was interrupted, or one of its processes died.
pub async fn run(args: &Args) -> anyhow::Result<Card> {
    prepare(args)?;
    play::run(args).await
}

fn prepare(args: &Args) -> anyhow::Result<()> {
    match (&args.assets, args.kind()) {
        (None, _) => Ok(()),
        (Some(dir), Kind::Real) => look_first_in(dir),
        (Some(_), Kind::Embedded) => {
            bail!("--assets is for real control planes: leave it out, or say --control-plane real")
        }
    }
}

impl Args {
    /// The kind of control plane that `--control-plane` selects.
    fn kind(&self) -> Kind {
        match (self.control_plane, &self.assets) {
            (ControlPlaneKind::Real, _) | (ControlPlaneKind::Auto, Some(_)) => Kind::Real,
            (ControlPlaneKind::Embedded, _) | (ControlPlaneKind::Auto, None) => Kind::Embedded,
        }
    }
}

/// Starts this program again with the directory in its environment, where the harness reads it. Why: a process cannot
/// safely change its own environment.
fn look_first_in(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;
    let dir = dir
        .canonicalize()
        .with_context(|| format!("--assets {}", dir.display()))?;
    if std::env::var_os(ASSETS).is_some_and(|set| set == dir) {
        return Ok(());
    }
    let error = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ASSETS, dir)
        .exec();
    Err(error).context("starting again with --assets")
}
