//! A control plane in this process: the embedded API server over HTTPS on loopback, and a world that plays the rest.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use roadstead_apiserver::{Clock, HttpsCaller, Listening, Server, User};
use roadstead_world::{Capacity, Garbage, Jobs, World};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::access::{Access, Admin};
use super::{Error, POLL, start};
use crate::audit;
use crate::options::{Audit, Options, PLAYED};

/// Controllers of kube-controller-manager that are played.
const JOBS: &str = "job-controller";
const GARBAGE: &str = "garbage-collector-controller";
/// How often garbage is collected. A pass over an unchanged server costs nothing.
const GARBAGE_EVERY: Duration = Duration::from_millis(100);
/// Limit of the wait until the played nodes are Ready.
const NODES_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Embedded {
    access: Access,
    server: Server,
    /// The audit log. The file has no name, so it is gone with the process.
    log: Option<Arc<File>>,
    _world: AbortOnDropHandle<()>,
    _listening: Listening,
}

impl Embedded {
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// An administrator's client without a network.
    pub(super) fn client(&self) -> Client {
        client(&self.server)
    }

    /// The path of the audit log, for this process only.
    pub(super) fn audit_log(&self) -> Option<PathBuf> {
        let log = self.log.as_ref()?;
        Some(format!("/proc/self/fd/{}", log.as_raw_fd()).into())
    }
}

fn client(server: &Server) -> Client {
    Client::new(server.service(User::admin()), "default")
}

pub(super) async fn start(options: Options) -> Result<Embedded, Error> {
    let Options {
        name,
        kind: _,
        controllers,
        scheduler,
        kwok,
        nodes,
        audit,
        apiserver_flags: _,
        start_timeout: _,
        progress: _,
    } = options;
    start::check_name(&name)?;
    // Why random: names and UIDs of two runs must differ, and tokens must not be guessed.
    let seed = rand::random();
    let server = Server::new(roadstead_apiserver::Options {
        caller: Arc::new(HttpsCaller::default()),
        ..roadstead_apiserver::Options::new(Clock::new(Timestamp::now), seed)
    });
    let log = match audit {
        Audit::Off => None,
        Audit::Metadata => Some(write_down(&server)?),
    };
    let listening = server.listen(0).await.map_err(|source| Error::Listen {
        plane: name.clone(),
        source,
    })?;
    let access = Access {
        name: name.clone(),
        port: listening.address().port(),
        ca_pem: listening.ca_pem().to_owned(),
        admin: Admin::Token(server.issue_token(User::admin())),
    };
    let runs = |controller: &str| controllers.iter().any(|each| each == controller);
    let kinds: Vec<_> = { PLAYED.iter() }
        .filter(|(controller, _)| runs(controller))
        .map(|(_, kind)| *kind)
        .collect();
    let played = scheduler && kwok;
    let world = World {
        jobs: if runs(JOBS) { Jobs::Played } else { Jobs::LeftAlone },
        kinds: kinds.iter().copied().collect(),
        nodes: if played { nodes.clone() } else { Vec::new() },
        capacity: Capacity::LeftAlone,
        garbage: runs(GARBAGE).then(|| garbage(&server)),
        ..World::idle(seed)
    };
    let client = client(&server);
    for kind in kinds {
        define(&name, &client, kind).await?;
    }
    let run = roadstead_world::run(
        world,
        client.clone(),
        Arc::new(Timestamp::now),
        CancellationToken::new(),
    );
    let embedded = Embedded {
        access,
        server,
        log,
        _world: AbortOnDropHandle::new(tokio::spawn(run)),
        _listening: listening,
    };
    if played && !nodes.is_empty() {
        wait_for_nodes(&name, &client, nodes.len()).await?;
    }
    Ok(embedded)
}

/// Makes the API server serve a kind.
async fn define(plane: &str, client: &Client, kind: roadstead_world::Kind) -> Result<(), Error> {
    let refused = |source: Box<dyn std::error::Error + Send + Sync>| Error::Client {
        plane: plane.to_owned(),
        source,
    };
    let definition = kind.definition().map_err(|error| refused(error.into()))?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let made = api.create(&PostParams::default(), &definition).await;
    made.map(drop).map_err(|error| refused(error.into()))
}

/// Logs every request that comes over the network, as a real server would.
fn write_down(server: &Server) -> Result<Arc<File>, Error> {
    let log = tempfile::tempfile().map_err(|source| Error::File {
        doing: "making an audit log in",
        path: std::env::temp_dir(),
        source,
    })?;
    let log = Arc::new(log);
    let book = Arc::clone(&log);
    server.observe_requests(move |asked| {
        let line = audit::line(asked, Timestamp::now());
        // Why one write: several requests may end at the same time. Why ignored: counts that are too low show in the measurements.
        let _ = (&*book).write_all(line.as_bytes());
    });
    Ok(log)
}

/// A garbage collector that acts only if the server was written to since the last call.
fn garbage(server: &Server) -> Garbage {
    let (server, seen) = (server.clone(), AtomicU64::new(0));
    Garbage {
        every: GARBAGE_EVERY,
        collect: Arc::new(move || {
            if server.version() != seen.load(Ordering::Relaxed) {
                server.settle();
                seen.store(server.version(), Ordering::Relaxed);
            }
        }),
    }
}

async fn wait_for_nodes(plane: &str, client: &Client, count: usize) -> Result<(), Error> {
    let api: Api<Node> = Api::all(client.clone());
    let ready = async {
        loop {
            let nodes = api.list(&ListParams::default()).await;
            if nodes
                .is_ok_and(|nodes| nodes.items.iter().filter(|node| start::is_ready(node)).count() >= count)
            {
                return;
            }
            sleep(POLL).await;
        }
    };
    timeout(NODES_PATIENCE, ready)
        .await
        .map_err(|_elapsed| Error::NotReady {
            plane: plane.to_owned(),
            what: "nodes".to_owned(),
            waited: NODES_PATIENCE,
            process: "the world",
            tail: String::new(),
        })
}
