//! One cluster with a `roadstead-worker` alone: an admission engine without a manager.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use super::account::Who;
use super::command::run_command;
use super::single::Single;
use super::subject::Subject;
use super::{Error, Part, Programs, account, client_of, objects, system};
use crate::process::Signal;
use crate::{ControlPlane, Options, Progress};

/// Its name in errors.
const WORKER: &str = "the worker";

/// A running cluster with one `roadstead-worker`. Everything ends when it is dropped or this process dies.
#[derive(Debug)]
pub struct Solo {
    single: Single,
    /// Arguments of the process, in addition to those of every stage.
    args: Vec<String>,
    programs: Programs,
    dir: TempDir,
}

impl Solo {
    /// Starts the cluster with the definitions, and the process. `configuration` is merged over the `Configuration` of the process.
    ///
    /// *Errors*: a missing program, a process that died (with the end of its log), a part that was not ready in time.
    /// *Limits*: a first build of the programs takes minutes.
    pub async fn start(options: Options, configuration: &Value, progress: Progress) -> Result<Self, Error> {
        Self::start_with(options, configuration, &[], progress).await
    }

    /// As [`Solo::start`], with more arguments for the process.
    pub async fn start_with(
        options: Options,
        configuration: &Value,
        args: &[&str],
        progress: Progress,
    ) -> Result<Self, Error> {
        let programs = Programs::find_or_build(&progress)
            .await
            .map_err(Error::Programs)?;
        progress.step("starting a control plane");
        let plane = ControlPlane::start(options.with_progress(progress.clone()))
            .await
            .map_err(Error::Plane)?;
        let dir = tempfile::Builder::new()
            .prefix("roadstead-solo-")
            .tempdir()
            .map_err(system("creating a directory for the cluster"))?;
        progress.step("installing the definitions");
        let client = client_of(&plane)?;
        objects::install_definitions(plane.name(), &client).await?;
        account::grant(plane.name(), &client, Who::Ours(Part::Worker)).await?;
        let token = account::token(plane.name(), &client).await?;
        plane
            .write_kubeconfig_for_token_via(&dir.path().join("kubeconfig"), &plane.server_url(), &token)
            .map_err(Error::Plane)?;
        progress.step("starting the worker");
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let subject = Self::spawn(&plane, &programs, &dir, configuration, &args)?;
        let mut single = Single::new(subject, plane);
        single.wait(WORKER).await?;
        Ok(Self {
            single,
            args,
            programs,
            dir,
        })
    }

    /// Kills the process and starts it with another configuration.
    pub async fn reconfigure(&mut self, configuration: &Value) -> Result<(), Error> {
        self.single.subject.kill();
        self.single.subject =
            Self::spawn(self.plane(), &self.programs, &self.dir, configuration, &self.args)?;
        self.wait(WORKER).await
    }

    /// Kills the process (SIGKILL) and starts it again.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.single.subject.kill();
        self.single.subject.spawn()?;
        self.wait(WORKER).await
    }

    /// The directory of its files, which is deleted at the end.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the command `roadstead` and returns what it printed.
    pub async fn command(&self, args: &[&str]) -> Result<String, Error> {
        run_command(&self.programs, self.dir.path(), args, Stdio::null()).await
    }

    /// As [`Solo::command`], with a file as its standard input.
    pub async fn command_reading(&self, input: &Path, args: &[&str]) -> Result<String, Error> {
        let input = File::open(input).map_err(system("opening the input of roadstead"))?;
        run_command(&self.programs, self.dir.path(), args, input.into()).await
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        self.single.subject.kill();
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) -> Result<(), Error> {
        self.single.subject.signal(Signal::Terminate)
    }

    /// Ends the process and the plane of a cluster that cannot be dropped, because it is shared; nothing starts them again.
    pub fn end(&self) {
        // Why ignored: it fails only if the process has ended by itself.
        let _ = self.single.subject.signal(Signal::Kill);
        self.plane().end();
    }

    fn spawn(
        plane: &ControlPlane,
        programs: &Programs,
        dir: &TempDir,
        configuration: &Value,
        args: &[String],
    ) -> Result<Subject, Error> {
        let kubeconfig = dir.path().join("kubeconfig");
        Subject::start(
            plane.name(),
            &programs.worker,
            dir.path(),
            &kubeconfig,
            configuration,
            args,
        )
    }
}

impl Deref for Solo {
    type Target = Single;

    fn deref(&self) -> &Single {
        &self.single
    }
}

impl DerefMut for Solo {
    fn deref_mut(&mut self) -> &mut Single {
        &mut self.single
    }
}
