//! One run of the command `roadstead`, as a user starts it.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::{Error, PATIENCE, Programs, system};

/// Runs the command `roadstead` in a folder and returns what it printed.
pub(super) async fn run_command(
    programs: &Programs,
    dir: &Path,
    args: &[&str],
    input: Stdio,
) -> Result<String, Error> {
    let mut command = Command::new(&programs.command);
    command
        .args(args)
        .current_dir(dir)
        .stdin(input)
        .kill_on_drop(true);
    let output = timeout(PATIENCE, command.output())
        .await
        .map_err(|_elapsed| Error::NotReady {
            what: format!("roadstead {} still runs", args.join(" ")),
            waited: PATIENCE,
            detail: String::new(),
        })?
        .map_err(system("running roadstead"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(Error::Command {
        args: args.join(" "),
        status: output.status,
        output: format!("{printed}{}", String::from_utf8_lossy(&output.stderr)),
    })
}
