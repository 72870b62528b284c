//! A control plane made of processes, as it runs. What each method promises is said at the plane's own.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::access::Access;
use super::{APISERVER, Error, POLL, commands, start};
use crate::binaries::Binaries;
use crate::options::Audit;
use crate::process::{Guarded, Signal, Spec};

/// A running control plane of processes.
pub(super) struct Real {
    pub(super) access: Access,
    pub(super) start_timeout: Duration,
    pub(super) binaries: Binaries,
    pub(super) audit: Audit,
    pub(super) processes: Mutex<Vec<Guarded>>,
    /// What `kill_apiserver` leaves for `restart_apiserver`.
    pub(super) apiserver: Spec,
    // Invariant: after `processes`, so that they are gone before their files.
    pub(super) dir: TempDir,
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Real")
            .field("access", &self.access)
            .field("dir", &self.dir.path())
            .finish_non_exhaustive()
    }
}

impl Real {
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub(super) fn audit_log(&self) -> Option<PathBuf> {
        match self.audit {
            Audit::Off => None,
            Audit::Metadata => Some(self.dir.path().join(commands::AUDIT_LOG)),
        }
    }

    pub(super) fn process_ids(&self) -> Vec<(&'static str, u32)> {
        self.processes()
            .iter()
            .map(|process| (process.name(), process.id()))
            .collect()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for process in self.processes().iter_mut() {
            let name = process.name();
            if let Some(status) = process
                .ended()
                .map_err(|source| self.process_error("looking at", name, source))?
            {
                return Err(Error::Died {
                    plane: self.access.name.clone(),
                    process: name,
                    status,
                    tail: process.log_tail(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::Stop)
    }

    pub(super) fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::Continue)
    }

    pub(super) fn kill_apiserver(&self) {
        self.kill(APISERVER);
    }

    pub(super) async fn restart_apiserver(&self) -> Result<(), Error> {
        self.kill_apiserver();
        let deadline = Instant::now() + self.start_timeout;
        loop {
            self.spawn(self.apiserver.clone())?;
            match self.wait_served(deadline).await {
                // Why: a client's outgoing connection may sit on the port for a moment.
                Err(Error::Died { tail, .. })
                    if start::port_was_taken(&tail) && Instant::now() < deadline =>
                {
                    self.kill_apiserver();
                    tokio::time::sleep(POLL).await;
                }
                result => return result,
            }
        }
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, Vec<Guarded>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kill(&self, name: &str) {
        // Why not in one statement: the lock must not be held while the process is collected.
        let killed: Vec<Guarded> = self
            .processes()
            .extract_if(.., |process| process.name() == name)
            .collect();
        drop(killed);
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.processes()
            .iter()
            .filter(|process| process.name() == APISERVER)
            .try_for_each(|process| process.signal(signal))
            .map_err(|source| self.process_error("signalling", APISERVER, source))
    }

    pub(super) fn spawn(&self, spec: Spec) -> Result<(), Error> {
        let name = spec.name;
        let process = Guarded::spawn(spec).map_err(|source| self.process_error("starting", name, source))?;
        self.processes().push(process);
        Ok(())
    }

    fn process_error(&self, doing: &'static str, process: &'static str, source: std::io::Error) -> Error {
        Error::Process {
            plane: self.access.name.clone(),
            doing,
            process,
            source,
        }
    }
}
