//! A process that cannot outlive its owner.
//!
//! Dropping is not enough: statics are never dropped, Ctrl-C runs no destructor and SIGKILL runs nothing at all. So each
//! process starts with a watcher, a shell that reads from a pipe whose only writing end the owner holds. However the owner
//! ends, the kernel closes that pipe; the watcher then kills the process and removes its directory. An owner that has reaped
//! the process tells the watcher so, because the process id may belong to another process by then.
//!
//! Invariant: the process is its own group leader, so a Ctrl-C in the terminal reaches only the owner, and [`Guarded::id`] is
//! the process itself, not a shell around it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Bytes of a log that an error may quote.
const TAIL_BYTES: u64 = 4096;
/// Lines of a log that an error quotes.
const TAIL_LINES: usize = 12;

/// The watcher. Why the second `rm`: the killed process may still create a file in its last system call.
const WATCHED: &str = r#"
exec 3<&0
pid=$$
dir=$1
shift
(
    exec >/dev/null 2>&1
    cd /
    read -r collected <&3 || {
        kill -9 "$pid"
        rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
    }
) </dev/null &
exec "$@" 3<&- </dev/null
"#;

/// One signal that [`Guarded::signal`] sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Continue,
    Terminate,
    Kill,
}

/// A command and its directories.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// Short name for messages and the log file.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    /// Working directory.
    pub(crate) workdir: PathBuf,
    /// The directory that the watcher removes if the owner dies.
    pub(crate) doomed: PathBuf,
    /// The file to which standard output and error are appended.
    pub(crate) log: PathBuf,
}

/// A process that runs, or has ended and is not yet reaped.
#[derive(Debug)]
pub(crate) struct Guarded {
    spec: Spec,
    child: Child,
}

impl Guarded {
    /// Starts the process and its watcher.
    pub(crate) fn spawn(spec: Spec) -> std::io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(&spec.log)?;
        let child = Command::new("sh")
            .args([OsStr::new("-c"), OsStr::new(WATCHED), OsStr::new("sh")])
            .arg(&spec.doomed)
            .arg(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&spec.workdir)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Self { spec, child })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.spec.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status if the process has ended by itself.
    pub(crate) fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.release();
        }
        Ok(status)
    }

    /// Waits for the process to end by itself; blocks.
    pub(crate) fn wait(&mut self) -> std::io::Result<ExitStatus> {
        // Why not `Child::wait`: it closes the pipe first, which tells the watcher that the owner is gone.
        let leash = self.child.stdin.take();
        let status = self.child.wait();
        self.child.stdin = leash;
        self.release();
        status
    }

    /// Sends a signal, through the shell because the standard library sends only SIGKILL.
    pub(crate) fn signal(&self, signal: Signal) -> std::io::Result<()> {
        let word = match signal {
            Signal::Stop => "STOP",
            Signal::Continue => "CONT",
            Signal::Terminate => "TERM",
            Signal::Kill => "KILL",
        };
        let status = Command::new("sh")
            .args(["-c", r#"kill -"$1" "$2""#, "sh", word, &self.id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(std::io::Error::other(format!("kill -{word} failed: {status}")))
        }
    }

    /// Kills and reaps the process. May be called again.
    pub(crate) fn stop(&mut self) {
        // Why ignored: both fail only if the process has already been reaped.
        let _ = self.child.kill();
        let _ = self.wait();
    }

    /// The last lines that the process wrote.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.spec.log)
    }

    fn release(&mut self) {
        if let Some(mut leash) = self.child.stdin.take() {
            // Why ignored: it fails only if the watcher is gone.
            let _ = leash.write_all(b"collected\n");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last lines of a file, or a remark if it cannot be read.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        // Why a limit: a log may be a device without an end.
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) if text.trim().is_empty() => "(it wrote nothing)".to_owned(),
        Ok(text) => {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        }
        Err(error) => format!("(its log cannot be read: {error})"),
    }
}

#[cfg(test)]
mod tests;
