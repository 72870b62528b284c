//! The clocks of one process. A test can shift its time of day, also while the process runs, and let its time pass too fast or
//! too slowly.
//!
//! A small library is loaded into the process before all others. Why in C: the functions that it replaces take raw pointers,
//! and this workspace forbids unsafe code.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Error, PATIENCE, Stage, system};

const SOURCE: &str = include_str!("clock.c");
/// The C compiler. Every machine with Rust has one, as the linker.
const COMPILER: &str = "cc";
/// The variable that tells the loader the library.
const LIBRARY: &str = "LD_PRELOAD";
/// The variable that tells the library its file.
const FILE: &str = "STAGE_CLOCK";

impl Stage {
    /// Shifts the time of day of our process in a cluster by `off`, also while it runs; its other clocks stay. A process with the
    /// machine's clocks gets its own clocks at its next start.
    ///
    /// *Errors*: there is no C compiler, or it fails.
    pub async fn set_clock(&self, cluster: &str, off: SignedDuration) -> Result<(), Error> {
        let library = self.clock.get_or_try_init(|| build(self.dir.path())).await?;
        self.with_subject(cluster, |subject| {
            subject.give_clock(library)?;
            subject.with_clock(|file| set(file, off))
        })
    }

    /// Makes all clocks of our process in a cluster run fast by `ppm` parts per million, from its next start on.
    ///
    /// *Errors*: as [`Stage::set_clock`].
    pub async fn set_drift(&self, cluster: &str, ppm: i32) -> Result<(), Error> {
        let library = self.clock.get_or_try_init(|| build(self.dir.path())).await?;
        self.with_subject(cluster, |subject| {
            subject.give_clock(library)?;
            subject.with_clock(|file| set_drift(file, ppm))
        })
    }

    /// Gives a process the machine's clocks again, and kills it if it had its own.
    pub fn drop_clock(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| {
            subject.drop_clock();
            Ok(())
        })
    }
}

/// Builds the library in this directory.
///
/// *Errors*: there is no C compiler, or it fails.
async fn build(dir: &Path) -> Result<PathBuf, Error> {
    build_with(COMPILER, dir).await
}

async fn build_with(compiler: &str, dir: &Path) -> Result<PathBuf, Error> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    fs::write(&source, SOURCE).map_err(system("writing the source of the clock"))?;
    let mut command = Command::new(compiler);
    command
        .args(["-shared", "-fPIC", "-O2", "-o"].map(OsStr::new))
        .args([&library, &source])
        .kill_on_drop(true);
    let output = timeout(PATIENCE, command.output())
        .await
        .map_err(|_elapsed| Error::NotReady {
            what: format!("{compiler} still makes the clock"),
            waited: PATIENCE,
            detail: String::new(),
        })?
        .map_err(system(format!(
            "running {compiler}, the C compiler that makes the clock"
        )))?;
    if output.status.success() {
        return Ok(library);
    }
    Err(Error::Clock {
        compiler: compiler.to_owned(),
        status: output.status,
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Bytes of a number for the library.
const NUMBER: usize = size_of::<i64>();

/// Creates the file for correct clocks.
pub(super) fn make(file: &Path) -> Result<(), Error> {
    fs::write(file, [0; 2 * NUMBER]).map_err(system(format!("making the clock {}", file.display())))
}

/// Sets the shift of the time of day of the process that reads this file.
pub(super) fn set(file: &Path, off: SignedDuration) -> Result<(), Error> {
    write(file, 0, i64::try_from(off.as_nanos()).unwrap_or(i64::MAX))
}

/// Sets the drift, in parts per million, of the process that reads this file.
pub(super) fn set_drift(file: &Path, ppm: i32) -> Result<(), Error> {
    write(file, NUMBER, ppm.into())
}

fn write(file: &Path, at: usize, number: i64) -> Result<(), Error> {
    let doing = || format!("setting the clock of {}", file.display());
    let write = || {
        // Why neither truncated nor replaced: the process has mapped the file.
        let open = fs::OpenOptions::new().write(true).open(file)?;
        std::os::unix::fs::FileExt::write_all_at(&open, &number.to_ne_bytes(), at as u64)
    };
    write().map_err(system(doing()))
}

/// The environment of a process with this clock.
pub(super) fn environment(library: &Path, file: &Path) -> [(&'static str, String); 2] {
    [(LIBRARY, library), (FILE, file)].map(|(name, path)| (name, path.display().to_string()))
}

/// Whether a variable belongs to such an environment.
pub(super) fn is_ours(name: &str) -> bool {
    [LIBRARY, FILE].contains(&name)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use jiff::Timestamp;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    /// Prints the time of day in seconds, once for each line that it reads. The shell reads the clock itself and starts no process.
    const TELL: &str = r#"while read -r _; do echo "$EPOCHREALTIME"; done"#;
    /// Limit of a shell's answer on a busy machine.
    const SLOW: SignedDuration = SignedDuration::from_secs(20);

    /// Spec: safety F18
    #[tokio::test]
    async fn the_time_of_day_of_a_process_jumps_while_it_runs_and_by_parts_of_a_second_too() {
        let dir = tempfile::tempdir().unwrap();
        let library = build(dir.path()).await.unwrap();
        let file = dir.path().join("clock");
        make(&file).unwrap();
        let mut shell = Command::new("bash")
            .args(["-c", TELL])
            .envs(environment(&library, &file))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut asks = shell.stdin.take().unwrap();
        let mut tells = BufReader::new(shell.stdout.take().unwrap()).lines();
        for millis in [0, 3_600_250, -7_200_750, 900, -900, 0] {
            let off = SignedDuration::from_millis(millis);
            set(&file, off).unwrap();
            let before = Timestamp::now();
            asks.write_all(b"\n").await.unwrap();
            let told = tells.next_line().await.unwrap().unwrap();
            let told: f64 = told.parse().unwrap();
            let told = Timestamp::UNIX_EPOCH + SignedDuration::from_secs_f64(told);
            let late = told.duration_since(before + off);
            // Why not zero: the shell prints microseconds.
            let none = SignedDuration::from_millis(-1);
            assert!(none <= late && late < SLOW, "{off}: {told} is late by {late}");
        }
    }

    /// Waits a second for events, as an event loop does, and prints how many milliseconds it has waited.
    const WAITS: &str = r#"
        #include <stdio.h>
        #include <sys/epoll.h>
        #include <time.h>
        int main(void) {
            struct timespec first, last;
            struct epoll_event none;
            clock_gettime(CLOCK_MONOTONIC, &first);
            epoll_wait(epoll_create1(0), &none, 1, 1000);
            clock_gettime(CLOCK_MONOTONIC, &last);
            printf("%ld", (last.tv_sec - first.tv_sec) * 1000 + (last.tv_nsec - first.tv_nsec) / 1000000);
            return 0;
        }"#;

    /// Spec: safety F18
    #[tokio::test]
    async fn for_a_process_whose_clocks_are_fast_or_slow_a_second_is_shorter_or_longer() {
        let dir = tempfile::tempdir().unwrap();
        let library = build(dir.path()).await.unwrap();
        let (file, source, program) = (
            dir.path().join("clock"),
            dir.path().join("waits.c"),
            dir.path().join("waits"),
        );
        fs::write(&source, WAITS).unwrap();
        let made = Command::new(COMPILER)
            .arg("-o")
            .args([&program, &source])
            .status();
        assert!(made.await.unwrap().success());
        make(&file).unwrap();
        let mut took = Vec::new();
        for ppm in [0, 500_000, -500_000] {
            set_drift(&file, ppm).unwrap();
            let begun = std::time::Instant::now();
            let mut waits = Command::new(&program);
            let told = waits.envs(environment(&library, &file)).output().await.unwrap();
            took.push(begun.elapsed());
            let told: u32 = String::from_utf8_lossy(&told.stdout).parse().unwrap();
            // By the process's clock it is a second each time, or a little more on a busy machine.
            assert!((1_000..3_000).contains(&told), "{ppm}: {told}");
        }
        // By the machine's clock the fast one is over after two thirds of a second, the slow one after two.
        assert!(took[1] < took[2], "{took:?}");
        assert!(took[0] >= std::time::Duration::from_secs(1), "{took:?}");
        assert!(took[2] >= std::time::Duration::from_secs(2), "{took:?}");
    }

    /// Spec: safety F18
    #[tokio::test]
    async fn a_process_whose_clock_cannot_be_found_does_not_go_on_with_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        let library = build(dir.path()).await.unwrap();
        let nowhere = environment(&library, &dir.path().join("nowhere"));
        let ended = Command::new("bash")
            .args(["-c", ":"])
            .envs(nowhere)
            .output()
            .await
            .unwrap();
        assert_eq!(ended.status.code(), Some(127));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("STAGE_CLOCK"), "{said}");
    }

    #[tokio::test]
    async fn a_compiler_that_fails_or_is_missing_is_named_with_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let error = build_with("false", dir.path()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("false could not make the clock"),
            "{error}"
        );
        let error = build_with("no-such-compiler", dir.path()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("running no-such-compiler"),
            "{error}"
        );
    }
}
