//! Nothing is left when the owner of a plane is killed.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use roadstead_e2e::Options;

use crate::shared::{eventually, plane, start, within};

/// Set in the process that plays the owner.
const ROLE: &str = "ROADSTEAD_E2E_OWNER";
const NAME: &str = "owner::killing_the_owner_leaves_no_process_and_no_file";
const MARK: &str = "owned: ";

/// Kills the owner even if the test fails half way.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lives(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test]
async fn killing_the_owner_leaves_no_process_and_no_file() {
    if env::var_os(ROLE).is_some() {
        return own_a_plane_until_killed().await;
    }
    // Why: a first build must not count against the deadline.
    plane().await;
    within(async {
        let owner = Command::new(env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ROLE, "yes")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut owner = Killed(owner);
        let said = BufReader::new(owner.0.stdout.take().unwrap());
        let owned = said
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
        let owned = owned.expect("the owner must start a plane");
        let (dir, processes) = owned.split_once(' ').unwrap();
        let processes: Vec<&str> = processes.split(' ').collect();
        assert_eq!(processes.len(), 5, "{owned}");
        assert!(processes.iter().all(|process| lives(process)) && Path::new(dir).exists());
        owner.0.kill().unwrap();
        eventually(|| async { (!processes.iter().any(|process| lives(process))).then_some(()) }).await;
        eventually(|| async { (!Path::new(dir).exists()).then_some(()) }).await;
    })
    .await;
}

async fn own_a_plane_until_killed() {
    let plane = start(Options::complete("owned").with_audit()).await;
    // The harder case: a stopped process cannot react to anything.
    plane.pause().unwrap();
    let dir = plane.audit_log().unwrap().parent().unwrap().display().to_string();
    let processes: Vec<String> = plane.process_ids().iter().map(|(_, id)| id.to_string()).collect();
    println!("{MARK}{dir} {}", processes.join(" "));
    std::future::pending::<()>().await;
}
