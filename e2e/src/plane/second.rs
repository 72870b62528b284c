//! A second API server on the etcd of a plane. It can be cut off from changes of Jobs, and then shows their past.
//!
//! For Jobs it reaches etcd through a [`Link`]. While that is cut, it answers requests for Jobs only from its watch cache (lists
//! of any version, watches). It serves all other resources as usual.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use tokio::time::{sleep, timeout};

use super::PROBE_TIMEOUT;
use super::real::Real;
use super::{APISERVER, Error, POLL, commands};
use crate::link::{Cut, Link};
use crate::port;
use crate::process::{Guarded, Signal};

/// A running second API server; it ends when this is dropped.
pub struct SecondServer {
    address: SocketAddr,
    client: kube::Client,
    storage: Link,
    process: Guarded,
}

impl fmt::Debug for SecondServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecondServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl SecondServer {
    /// The address of the server, which has the certificate of the plane's first server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// An administrator's client of it.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Cuts the server off from changes of Jobs.
    pub fn fall_behind(&self) {
        self.storage.cut(Cut::Swallow);
    }

    /// Freezes it (SIGSTOP).
    ///
    /// *Errors*: it cannot be signalled.
    pub fn pause(&self) -> std::io::Result<()> {
        self.process.signal(Signal::Stop)
    }

    /// Thaws it (SIGCONT): it continues with its old state.
    ///
    /// *Errors*: it cannot be signalled.
    pub fn resume(&self) -> std::io::Result<()> {
        self.process.signal(Signal::Continue)
    }
}

impl Real {
    pub(super) async fn second_server(&self) -> Result<SecondServer, Error> {
        let plane = || self.access.name.clone();
        let port = port::free().ok_or_else(|| Error::NoPort { plane: plane() })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = |source| Error::Process {
            plane: plane(),
            doing: "starting a second",
            process: APISERVER,
            source,
        };
        let storage = Link::start_to_socket(&self.dir.path().join(commands::ETCD_SOCKET)).await;
        let storage = storage.map_err(failed)?;
        let mut spec = self.apiserver.clone();
        // Why without an audit log: two processes would write to one file.
        let replaced = ["--secure-port=", "--audit-"];
        spec.args
            .retain(|arg| !replaced.iter().any(|start| arg.starts_with(start)));
        spec.args.extend([
            format!("--etcd-servers-overrides=batch/jobs#http://{}", storage.address()),
            format!("--secure-port={port}"),
        ]);
        spec.log.set_file_name("second-apiserver.log");
        let mut process = Guarded::spawn(spec).map_err(failed)?;
        let client = self.access.client_via(&format!("https://{address}"))?;
        let deadline = Instant::now() + self.start_timeout;
        loop {
            let asked = http::Request::get("/readyz").body(Vec::new());
            let asked = asked.map_err(|error| failed(std::io::Error::other(error)))?;
            if let Ok(Ok(_)) = timeout(PROBE_TIMEOUT, client.request_text(asked)).await {
                break;
            }
            if let Some(status) = process.ended().map_err(failed)? {
                return Err(Error::Died {
                    plane: plane(),
                    process: APISERVER,
                    status,
                    tail: process.log_tail(),
                });
            }
            if Instant::now() >= deadline {
                return Err(Error::NotReady {
                    plane: plane(),
                    what: "/readyz of the second API server".to_owned(),
                    waited: self.start_timeout,
                    process: APISERVER,
                    tail: process.log_tail(),
                });
            }
            sleep(POLL).await;
        }
        Ok(SecondServer {
            address,
            client,
            storage,
            process,
        })
    }
}
