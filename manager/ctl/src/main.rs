//! The command `roadstead`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::CompleteEnv;
use jiff::Timestamp;
use roadstead_ctl::args::{Area, Cli, ClusterVerb, ConfigVerb, SyncVerb};
use roadstead_ctl::cluster::{cordon, give_up, join, leave, list, move_cluster};
use roadstead_ctl::completion;
use roadstead_ctl::config;
use roadstead_ctl::describe;
use roadstead_ctl::doctor;
use roadstead_ctl::events;
use roadstead_ctl::explain;
use roadstead_ctl::failure::Failure;
use roadstead_ctl::get;
use roadstead_ctl::install;
use roadstead_ctl::man;
use roadstead_ctl::output;
use roadstead_ctl::sync;
use roadstead_ctl::top;

/// Name of the file under which kubectl finds its plugins.
const PLUGIN: &str = "kubectl-roadstead";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match completed() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
    let cli = parse(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(&failure.to_string());
            ExitCode::from(failure.code.number())
        }
    }
}

/// Answers a shell that asks what can be typed next; returns whether it asked.
fn completed() -> Result<bool, clap::Error> {
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| completion::with_names(Cli::command()))
        .var(completion::VARIABLE)
        .try_complete(std::env::args_os(), here.as_deref())
}

fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let plugin = args
        .first()
        .and_then(|program| Path::new(program).file_stem())
        .is_some_and(|stem| stem == PLUGIN);
    let command = if plugin {
        Cli::command().bin_name("kubectl roadstead")
    } else {
        Cli::command()
    };
    let mut matches = command.try_get_matches_from(args)?;
    Cli::from_arg_matches_mut(&mut matches)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let now = Timestamp::now();
    match cli.area {
        Area::Cluster { verb } => match verb {
            ClusterVerb::Join(args) => join::run(&args, now).await,
            ClusterVerb::List(args) => list::run(&args).await,
            ClusterVerb::Leave(args) => leave::run(&args).await,
            ClusterVerb::Cordon(args) => cordon::cordon(&args).await,
            ClusterVerb::Uncordon(args) => cordon::uncordon(&args).await,
            ClusterVerb::Drain(args) => cordon::drain(&args).await,
            ClusterVerb::GiveUp(args) => give_up::run(&args).await,
            ClusterVerb::Move(args) => move_cluster::run(&args, now).await,
        },
        Area::Install(args) => install::run(&args).await,
        Area::Uninstall(args) => install::remove::run(&args).await,
        Area::Doctor(args) => doctor::run(&args, now).await,
        Area::Explain(args) => explain::run(&args, now).await,
        Area::Completion(args) => completion::run(&args),
        Area::Man(args) => man::run(&args),
        Area::Describe(args) => describe::run(&args, now).await,
        Area::Events(args) => events::run(&args, Timestamp::now).await,
        Area::Get(args) => get::run(&args, Timestamp::now).await,
        Area::Top(args) => top::run(&args).await,
        Area::Sync { verb } => match verb {
            SyncVerb::Plan(args) => sync::show(&args).await,
            SyncVerb::Apply(args) => sync::apply(&args).await,
        },
        Area::Config { verb } => match verb {
            ConfigVerb::Check(args) => config::check(&args),
        },
    }
}
