//! Where our own binaries come from: built from the workspace beside us, else found beside our executable.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::Progress;

const MANAGER: &str = "roadstead-manager";
const WORKER: &str = "roadstead-worker";
const COMMAND: &str = "roadstead";
/// How many lines of a failed build are quoted.
const TAIL_LINES: usize = 20;

/// Why the programs are not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// cargo could not be run.
    #[error("running {} to build {MANAGER}, {WORKER} and {COMMAND}", cargo.display())]
    Cargo {
        /// Which one.
        cargo: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The build failed.
    #[error("building {MANAGER}, {WORKER} and {COMMAND} failed ({status}):\n{tail}")]
    Build {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its output.
        tail: String,
    },
    /// One of them is nowhere.
    #[error("{program} is missing: build it with `cargo build --release`, or put it into {}", place.display())]
    Missing {
        /// Which one.
        program: &'static str,
        /// Where it was looked for.
        place: PathBuf,
    },
}

/// The paths of our binaries.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `roadstead-manager`.
    pub manager: PathBuf,
    /// `roadstead-worker`.
    pub worker: PathBuf,
    /// The command `roadstead`.
    pub command: PathBuf,
}

static FOUND: OnceCell<Programs> = OnceCell::const_new();

impl Programs {
    /// Builds them with the profile of the running binary if the workspace is there, so that what runs is what the source
    /// says; else takes those beside our executable. The first build takes minutes, a later one less than a second.
    pub async fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        FOUND.get_or_try_init(|| find_or_build(progress)).await.cloned()
    }
}

async fn find_or_build(progress: &Progress) -> Result<Programs, Error> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    if manifest.exists() {
        build(&manifest, progress).await
    } else {
        beside_us()
    }
}

async fn build(manifest: &Path, progress: &Progress) -> Result<Programs, Error> {
    progress.step(&format!(
        "building {MANAGER}, {WORKER} and {COMMAND} (the first time takes minutes)"
    ));
    let cargo = PathBuf::from(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut command = Command::new(&cargo);
    command
        .args([
            "build",
            "--message-format=json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(manifest)
        // Why no `-p`: then the features of dependencies are those of the whole workspace, as with `cargo run --bin demo`, and
        // nothing is built twice.
        .args(["--bin", MANAGER, "--bin", WORKER, "--bin", COMMAND])
        .kill_on_drop(true);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // Why: build scripts ask for what cargo tells the process that it runs, us, and would build everything anew each time
    // this build and one from a shell take turns.
    for name in env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| is_told_by_cargo(name))
    {
        command.env_remove(name);
    }
    let output = command
        .output()
        .await
        .map_err(|source| Error::Cargo { cargo, source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        return Err(Error::Build {
            status: output.status,
            tail: lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"),
        });
    }
    let made: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok()?.executable)
        .collect();
    of_all(|program| {
        made.iter()
            .find(|path| path.file_name().is_some_and(|name| name == program))
            .cloned()
            .ok_or_else(|| Error::Missing {
                program,
                place: "the output of cargo build".into(),
            })
    })
}

/// Whether cargo sets this variable for the package whose program or test it runs.
fn is_told_by_cargo(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&&*name)
}

// Wire: https://doc.rust-lang.org/cargo/reference/external-tools.html, reason `compiler-artifact`.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
}

fn beside_us() -> Result<Programs, Error> {
    let place = env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.to_owned()))
        .unwrap_or_default();
    of_all(|program| {
        let path = place.join(program);
        if path.is_file() {
            Ok(path)
        } else {
            Err(Error::Missing {
                program,
                place: place.clone(),
            })
        }
    })
}

fn of_all(find: impl Fn(&'static str) -> Result<PathBuf, Error>) -> Result<Programs, Error> {
    Ok(Programs {
        manager: find(MANAGER)?,
        worker: find(WORKER)?,
        command: find(COMMAND)?,
    })
}
