use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

fn spec(dir: &Path, script: &str) -> Spec {
    Spec {
        name: "subject",
        program: "sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: Vec::new(),
        workdir: dir.to_owned(),
        doomed: dir.join("doomed"),
        log: dir.join("log"),
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The state letter of a process, `None` if there is none (a zombie counts as none).
fn state(id: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    text.rsplit_once(") ")?
        .1
        .chars()
        .next()
        .filter(|letter| *letter != 'Z')
}

#[test]
fn closing_the_pipe_kills_the_process_and_removes_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("doomed")).unwrap();
    let mut process = Guarded::spawn(spec(dir.path(), "exec sleep 600")).unwrap();
    assert!(state(process.id()).is_some());
    // The kernel does this when the owner dies.
    drop(process.child.stdin.take());
    eventually("the watcher must kill the process", || {
        state(process.id()).is_none()
    });
    eventually("the watcher must remove the directory", || {
        !dir.path().join("doomed").exists()
    });
}

#[test]
fn a_stopped_process_is_killed_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = Guarded::spawn(spec(dir.path(), "exec sleep 600")).unwrap();
    // Why: before that, the shell may not have started the watcher.
    eventually("the program must run", || {
        fs::read_to_string(format!("/proc/{}/comm", process.id())).is_ok_and(|name| name.trim() == "sleep")
    });
    process.signal(Signal::Stop).unwrap();
    eventually("SIGSTOP must arrive", || state(process.id()) == Some('T'));
    drop(process.child.stdin.take());
    eventually("the watcher must kill the process", || {
        state(process.id()).is_none()
    });
}

#[test]
fn a_collected_process_keeps_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("doomed")).unwrap();
    let mut process = Guarded::spawn(spec(dir.path(), "echo first; echo last; exit 3")).unwrap();
    let watcher =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.id())).unwrap_or_default();
    assert_eq!(process.wait().unwrap().code(), Some(3));
    assert_eq!(process.log_tail(), "first\nlast");
    for id in watcher.split_whitespace() {
        eventually("the watcher must end", || state(id.parse().unwrap()).is_none());
    }
    assert!(dir.path().join("doomed").exists());
}

#[test]
fn dropping_stops_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let process = Guarded::spawn(spec(dir.path(), "exec sleep 600")).unwrap();
    let id = process.id();
    drop(process);
    assert_eq!(state(id), None);
}

#[test]
fn signals_stop_and_continue() {
    let dir = tempfile::tempdir().unwrap();
    let process = Guarded::spawn(spec(dir.path(), "exec sleep 600")).unwrap();
    process.signal(Signal::Stop).unwrap();
    eventually("SIGSTOP must arrive", || state(process.id()) == Some('T'));
    process.signal(Signal::Continue).unwrap();
    eventually("SIGCONT must arrive", || state(process.id()) == Some('S'));
}
