//! One process: `roadstead-manager`, `roadstead-worker` or Kueue.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;

use super::clock;
use super::configuration::render_config;
use super::kueue::{self, Kueue, Place};
use super::ports::free_ports;
use super::usage::{Memory, cpu_of, memory_of, not_running};
use super::{Error, Part, SYSTEM_NAMESPACE, system};
use crate::process::{self, Guarded, Signal, Spec};

/// The program of a management cluster.
const MANAGER: &str = "roadstead-manager";

/// Resources of the system that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handles {
    /// Open files, connections among them.
    pub files: usize,
    /// The number of threads.
    pub threads: usize,
}

/// One process, running or killed.
#[derive(Debug)]
pub(super) struct Subject {
    cluster: String,
    part: Part,
    spec: Spec,
    health: SocketAddr,
    metrics: SocketAddr,
    process: Option<Guarded>,
}

impl Subject {
    /// Writes its configuration and starts it, without waiting until it is ready. `cluster` is its name, and that of its cluster
    /// unless it is a replica of another process; `more` are further arguments.
    pub(super) fn start(
        cluster: &str,
        program: &Path,
        dir: &Path,
        kubeconfig: &Path,
        configuration: &Value,
        more: &[String],
    ) -> Result<Self, Error> {
        let ports = free_ports()?;
        let config = dir.join(format!("{cluster}.config.yaml"));
        let (name, part) = if program.file_name().is_some_and(|name| name == MANAGER) {
            (MANAGER, Part::Manager)
        } else {
            ("roadstead-worker", Part::Worker)
        };
        let mut args = with_files(kubeconfig, &config);
        // Why: a killed process that is started again must not wait for its own lease.
        args.extend(["--identity".to_owned(), cluster.to_owned()]);
        args.extend_from_slice(more);
        write_config(&config, &render_config(ports, configuration))?;
        let spec = Spec {
            name,
            program: program.to_owned(),
            args,
            env: Vec::new(),
            workdir: dir.to_owned(),
            doomed: dir.to_owned(),
            log: dir.join(format!("{cluster}.log")),
        };
        Self::launch(cluster, part, spec, ports)
    }

    /// The same for Kueue, whose webhook configurations already have the port of this place.
    pub(super) fn start_kueue(
        cluster: &str,
        part: Part,
        kueue: &Kueue,
        place: &Place,
        files: Files<'_>,
    ) -> Result<Self, Error> {
        let Files {
            dir,
            kubeconfig,
            configuration,
        } = files;
        write_config(&place.config, &kueue::render_config(place, configuration))?;
        let mut args = with_files(kubeconfig, &place.config);
        // As in its release.
        args.push("--zap-log-level=2".to_owned());
        let spec = Spec {
            name: "kueue",
            program: kueue.controller().to_owned(),
            args,
            env: vec![("POD_NAMESPACE", SYSTEM_NAMESPACE.to_owned())],
            workdir: dir.to_owned(),
            doomed: dir.to_owned(),
            log: dir.join(format!("{cluster}.log")),
        };
        Self::launch(cluster, part, spec, place.ports)
    }

    fn launch(
        cluster: &str,
        part: Part,
        spec: Spec,
        [health, metrics, _webhook]: [u16; 3],
    ) -> Result<Self, Error> {
        let mut subject = Self {
            cluster: cluster.to_owned(),
            part,
            spec,
            health: (Ipv4Addr::LOCALHOST, health).into(),
            metrics: (Ipv4Addr::LOCALHOST, metrics).into(),
            process: None,
        };
        subject.spawn()?;
        Ok(subject)
    }

    pub(super) fn spawn(&mut self) -> Result<(), Error> {
        let doing = format!("starting {} of {}", self.spec.name, self.cluster);
        self.process = Some(Guarded::spawn(self.spec.clone()).map_err(system(doing))?);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// The exit status of the process if it has ended by itself; afterwards it counts as killed.
    pub(super) fn take_end(&mut self) -> Result<Option<ExitStatus>, Error> {
        let doing = format!("looking at {} of {}", self.spec.name, self.cluster);
        let ended = self.process.as_mut().map(Guarded::ended).transpose();
        let ended = ended.map_err(system(doing))?.flatten();
        if ended.is_some() {
            self.process = None;
        }
        Ok(ended)
    }

    /// Sends a signal; does nothing while the process is killed.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let doing = format!("signalling {} of {}", self.spec.name, self.cluster);
        let sent = self
            .process
            .as_ref()
            .map_or(Ok(()), |process| process.signal(signal));
        sent.map_err(system(doing))
    }

    /// Sets its log file from its next start on.
    pub(super) fn log_to(&mut self, log: &Path) {
        log.clone_into(&mut self.spec.log);
    }

    /// Gives it its own clocks from its next start on, which are correct until they are set.
    pub(super) fn give_clock(&mut self, library: &Path) -> Result<(), Error> {
        if self.has_own_clock() {
            return Ok(());
        }
        let file = self.clock();
        clock::make(&file)?;
        self.spec.env.extend(clock::environment(library, &file));
        Ok(())
    }

    /// Sets its clocks through their file.
    pub(super) fn with_clock(&self, set: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
        set(&self.clock())
    }

    fn clock(&self) -> PathBuf {
        self.spec.workdir.join(format!("{}.clock", self.cluster))
    }

    /// Gives it the machine's clocks again. Kills it if it had its own.
    pub(super) fn drop_clock(&mut self) {
        if self.has_own_clock() {
            self.spec.env.retain(|(name, _)| !clock::is_ours(name));
            self.kill();
        }
    }

    fn has_own_clock(&self) -> bool {
        self.spec.env.iter().any(|(name, _)| clock::is_ours(name))
    }

    /// The role of its cluster.
    pub(super) const fn part(&self) -> Part {
        self.part
    }

    pub(super) fn health(&self) -> SocketAddr {
        self.health
    }

    pub(super) const fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    pub(super) fn log(&self) -> PathBuf {
        self.spec.log.clone()
    }

    pub(super) fn log_tail(&self) -> String {
        process::tail(&self.spec.log)
    }

    /// Fails if the process has ended by itself; a killed process is fine.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        let doing = format!("looking at {} of {}", self.spec.name, self.cluster);
        let ended = self
            .process
            .as_mut()
            .map(Guarded::ended)
            .transpose()
            .map_err(system(doing))?;
        match ended.flatten() {
            None => Ok(()),
            Some(status) => Err(Error::Died {
                name: format!("{} of {}", self.spec.name, self.cluster),
                status,
                tail: self.log_tail(),
            }),
        }
    }

    pub(super) fn cpu(&mut self) -> Result<Duration, Error> {
        let doing = format!("reading the CPU time of {} of {}", self.spec.name, self.cluster);
        let process = self.process.as_ref().ok_or_else(not_running);
        process.and_then(cpu_of).map_err(system(doing))
    }

    pub(super) fn handles(&mut self) -> Result<Handles, Error> {
        let doing = format!("counting what {} of {} has open", self.spec.name, self.cluster);
        let read = || {
            let id = self.process.as_ref().map(Guarded::id).ok_or_else(not_running)?;
            Ok(Handles {
                files: fs::read_dir(format!("/proc/{id}/fd"))?.count(),
                threads: fs::read_dir(format!("/proc/{id}/task"))?.count(),
            })
        };
        read().map_err(system(doing))
    }

    pub(super) fn memory(&mut self) -> Result<Memory, Error> {
        let doing = format!("reading the memory of {} of {}", self.spec.name, self.cluster);
        let process = self.process.as_ref().ok_or_else(not_running);
        process.and_then(memory_of).map_err(system(doing))
    }
}

/// The inputs and the directory of a process of Kueue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) dir: &'a Path,
    pub(super) kubeconfig: &'a Path,
    /// Merged over its `Configuration`.
    pub(super) configuration: &'a Value,
}

fn with_files(kubeconfig: &Path, config: &Path) -> Vec<String> {
    vec![
        "--kubeconfig".to_owned(),
        kubeconfig.display().to_string(),
        "--config".to_owned(),
        config.display().to_string(),
    ]
}

fn write_config(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(system(format!("writing {}", path.display())))
}
