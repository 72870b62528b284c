//! Roadstead's own binaries: those of the folder `ROADSTEAD_PROGRAMS`, else those beside this executable if no source is newer, else built
//! from the workspace.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::SystemTime;

use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::Progress;

const MANAGER: &str = "roadstead-manager";
const WORKER: &str = "roadstead-worker";
const COMMAND: &str = "roadstead";
/// Environment variable with the folder whose programs are taken.
const GIVEN: &str = "ROADSTEAD_PROGRAMS";
/// How many lines of a failed build are quoted.
const TAIL_LINES: usize = 20;

/// Why the programs could not be found or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// cargo could not be run.
    #[error("running {} to build {MANAGER}, {WORKER} and {COMMAND}", cargo.display())]
    Cargo {
        /// The program that failed or is missing.
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
    /// A program is missing.
    #[error("{program} is missing: build it with `cargo build --release`, or put it into {}", place.display())]
    Missing {
        /// The program that failed or is missing.
        program: &'static str,
        /// The directory where it should be.
        place: PathBuf,
    },
    /// A program of `ROADSTEAD_PROGRAMS` is older than its sources.
    #[error("the programs in {} ({GIVEN}) are older than their sources: build them again, or unset {GIVEN}", place.display())]
    Old {
        /// The directory that the variable names.
        place: PathBuf,
    },
}

/// The paths of Roadstead's binaries.
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
    /// Takes the binaries of `ROADSTEAD_PROGRAMS` if it is set. Otherwise takes the binaries beside this executable, unless one is
    /// missing or older than its sources. Otherwise builds them with the profile of this executable, so that they match the sources.
    /// The first build takes minutes.
    ///
    /// *Errors*: the build failed; a program of `ROADSTEAD_PROGRAMS` is missing or older than its sources.
    pub async fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        FOUND.get_or_try_init(|| find_or_build(progress)).await.cloned()
    }
}

async fn find_or_build(progress: &Progress) -> Result<Programs, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if let Some(place) = env::var_os(GIVEN).filter(|place| !place.is_empty()) {
        return given(place.into(), &workspace);
    }
    let exe = env::current_exe().unwrap_or_default();
    let found = within(exe.parent().unwrap_or(&exe));
    if !workspace.join("Cargo.toml").exists() {
        return found;
    }
    match found {
        Ok(programs) if programs.are_current(&workspace) => Ok(programs),
        Ok(_) | Err(_) => build(&workspace.join("Cargo.toml"), profile_of(&exe), progress).await,
    }
}

/// The programs of a folder that the user named.
fn given(place: PathBuf, workspace: &Path) -> Result<Programs, Error> {
    let programs = within(&place)?;
    if programs.are_current(workspace) {
        Ok(programs)
    } else {
        Err(Error::Old { place })
    }
}

/// The cargo profile of an executable, by its directory.
fn profile_of(exe: &Path) -> &str {
    let mut folders = exe
        .parent()
        .into_iter()
        .flat_map(Path::ancestors)
        .filter_map(|folder| folder.file_name()?.to_str());
    match folders.find(|name| !["deps", "examples"].contains(name)) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    }
}

async fn build(manifest: &Path, profile: &str, progress: &Progress) -> Result<Programs, Error> {
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
        // Why no `-p`: dependencies then have the features of the whole workspace, as with `cargo run --bin demo`, and nothing is
        // built twice.
        .args(["--bin", MANAGER, "--bin", WORKER, "--bin", COMMAND])
        .args(["--profile", profile])
        .kill_on_drop(true);
    for name in told_by_cargo() {
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

/// The variables that cargo sets for the package whose program or test it runs.
///
/// Why a build that this process starts must not get them: build scripts depend on some of them. That build, and the next build from a
/// shell, would each rebuild everything.
pub fn told_by_cargo() -> impl Iterator<Item = OsString> {
    env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| is_told_by_cargo(name))
}

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

fn within(place: &Path) -> Result<Programs, Error> {
    of_all(|program| {
        let path = place.join(program);
        if path.is_file() {
            Ok(path)
        } else {
            Err(Error::Missing {
                program,
                place: place.to_owned(),
            })
        }
    })
}

impl Programs {
    /// Whether no program needs a new build.
    fn are_current(&self, workspace: &Path) -> bool {
        [&self.manager, &self.worker, &self.command]
            .into_iter()
            .all(|program| is_current(program, workspace).unwrap_or(false))
    }
}

/// Whether a program is newer than its sources, which cargo lists in a file beside it, and than `Cargo.lock`.
/// `None` if a file cannot be read.
fn is_current(program: &Path, workspace: &Path) -> Option<bool> {
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let built = changed(program)?;
    let named = fs::read_to_string(program.with_extension("d")).ok()?;
    let mut sources = parse_sources(&named)?;
    sources.push(workspace.join("Cargo.lock"));
    let times: Option<Vec<SystemTime>> = sources.iter().map(|source| changed(source)).collect();
    Some(times?.iter().all(|time| *time <= built))
}

/// The sources in a dependency file: `PROGRAM: SOURCE SOURCE`, where a space in a name is written `\ `.
// Wire: https://doc.rust-lang.org/cargo/reference/build-cache.html#dep-info-files.
fn parse_sources(text: &str) -> Option<Vec<PathBuf>> {
    const BLANK: char = '\0';
    let (_program, sources) = text.lines().next()?.split_once(": ")?;
    let sources = sources.replace("\\ ", &BLANK.to_string());
    let names = sources.split(' ').filter(|name| !name.is_empty());
    Some(names.map(|name| name.replace(BLANK, " ").into()).collect())
}

fn of_all(find: impl Fn(&'static str) -> Result<PathBuf, Error>) -> Result<Programs, Error> {
    Ok(Programs {
        manager: find(MANAGER)?,
        worker: find(WORKER)?,
        command: find(COMMAND)?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    /// A program that was built ten seconds after its sources, and after the lock.
    fn built(workspace: &Path) -> PathBuf {
        let source = workspace.join("a main.rs");
        let program = workspace.join(MANAGER);
        for path in [&source, &program, &workspace.join("Cargo.lock")] {
            fs::write(path, "").unwrap();
        }
        touch(&source, 0);
        touch(&workspace.join("Cargo.lock"), 0);
        touch(&program, 10);
        let named = source.display().to_string().replace(' ', "\\ ");
        fs::write(
            program.with_extension("d"),
            format!("{}: {named}\n", program.display()),
        )
        .unwrap();
        program
    }

    fn touch(path: &Path, secs: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + secs);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    #[test]
    fn a_program_is_taken_until_a_source_or_the_lock_is_newer() {
        for changes in ["a main.rs", "Cargo.lock"] {
            let workspace = tempfile::tempdir().unwrap();
            let program = built(workspace.path());
            assert_eq!(is_current(&program, workspace.path()), Some(true));
            touch(&workspace.path().join(changes), 11);
            assert_eq!(is_current(&program, workspace.path()), Some(false), "{changes}");
        }
    }

    #[test]
    fn a_program_whose_sources_are_gone_or_not_named_is_built_anew() {
        for lost in ["a main.rs", "roadstead-manager.d"] {
            let workspace = tempfile::tempdir().unwrap();
            let program = built(workspace.path());
            fs::remove_file(workspace.path().join(lost)).unwrap();
            assert_eq!(is_current(&program, workspace.path()), None, "{lost}");
        }
    }

    #[test]
    fn named_programs_are_taken_or_refused_but_never_built() {
        let workspace = tempfile::tempdir().unwrap();
        let place = workspace.path().to_owned();
        assert!(matches!(
            given(place.clone(), &place),
            Err(Error::Missing { program: MANAGER, .. })
        ));
        built(&place);
        for other in [WORKER, COMMAND] {
            fs::copy(place.join(MANAGER), place.join(other)).unwrap();
            fs::copy(
                place.join("roadstead-manager.d"),
                place.join(other).with_extension("d"),
            )
            .unwrap();
        }
        assert_eq!(given(place.clone(), &place).unwrap().worker, place.join(WORKER));
        touch(&place.join("a main.rs"), 11);
        let refused = given(place.clone(), &place).unwrap_err().to_string();
        assert!(refused.contains("older than their sources"), "{refused}");
    }

    #[test]
    fn the_profile_is_read_from_the_folder_of_the_executable() {
        for (exe, profile) in [
            ("/w/target/release/demo", "release"),
            ("/w/target/debug/demo", "dev"),
            ("/w/target/debug/deps/it-0123", "dev"),
            ("/w/target/dist/perf", "dist"),
            ("/demo", "dev"),
        ] {
            assert_eq!(profile_of(Path::new(exe)), profile, "{exe}");
        }
    }
}
