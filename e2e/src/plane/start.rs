//! Starts a plane, one part after the other. Each wait ends early if a process dies.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::access::{Access, Admin};
use super::commands::{self, Layout};
use super::real::{Certified, Real, port_was_taken};
use super::{CONTROLLER_MANAGER, Error, KWOK, SCHEDULER, inotify};
use crate::binaries::{self, Binaries, Program};
use crate::kubeconfig::{self, Credential};
use crate::options::{Kind, Options};
use crate::pki::{self, Authority};
use crate::port;

/// Memory-backed directory for the files of a plane.
const SHM: &str = "/dev/shm";
/// Free bytes that it must have: etcd keeps two log segments of 64 MB, and its database grows.
const SHM_FREE_BYTES_MIN: u64 = 2 << 30;
/// Attempts with another port if the chosen port was taken before the server could bind it.
const PORT_ATTEMPTS: usize = 5;
/// Longest name of a plane: it is part of a Unix socket's path, which ends at 107 bytes.
const NAME_MAX: usize = 40;
/// The controller without which no pod can be created.
const SERVICE_ACCOUNTS: &str = "serviceaccount-controller";

pub(super) async fn start(options: Options) -> Result<Real, Error> {
    let name = options.name.clone();
    check_name(&name)?;
    inotify::allow(&options.progress);
    let binaries = locate(&options).await?;
    let dir = directory(&name)?;
    let certificates = |source| Error::Certificates {
        plane: name.clone(),
        source,
    };
    let authority = Authority::new(&name).map_err(certificates)?;
    let next = Authority::new(&format!("{name}-next")).map_err(certificates)?;
    let certify = |authority: &Authority| {
        Ok::<_, Error>(Certified {
            authority: authority.pem(),
            server: authority.apiserver().map_err(certificates)?,
        })
    };
    let certified = [certify(&authority)?, certify(&next)?];
    let files = pki::write(&authority, &certified[0].server, dir.path()).map_err(certificates)?;
    let admin = authority.admin("roadstead-harness").map_err(certificates)?;
    let layout = Layout {
        options: &options,
        binaries: &binaries,
        dir: dir.path().to_owned(),
        files,
    };
    layout.write_configs()?;

    let deadline = Instant::now() + options.start_timeout;
    let mut plane = Real {
        access: Access {
            name: name.clone(),
            port: 0,
            ca_pem: certified.each_ref().map(|one| one.authority.as_str()).concat(),
            admin: Admin::Certificate(admin),
        },
        start_timeout: options.start_timeout,
        binaries: binaries.clone(),
        audit: options.audit,
        files: layout.files.clone(),
        certified,
        etcd: layout.etcd(),
        full: AtomicBool::new(false),
        processes: Mutex::new(Vec::new()),
        apiserver: layout.apiserver(0),
        more: Mutex::new(&[]),
        dir,
    };
    plane.spawn(layout.etcd())?;
    plane.wait_storage(deadline).await?;
    start_apiserver(&mut plane, &layout, deadline).await?;

    for (component, wanted) in [
        (CONTROLLER_MANAGER, !options.controllers.is_empty()),
        (SCHEDULER, options.scheduler),
        (KWOK, options.kwok),
    ] {
        if wanted {
            let identity = authority.admin(component).map_err(certificates)?;
            let credential = Credential::Certificate(&identity);
            let text = kubeconfig::render(
                &name,
                &plane.access.server_url(),
                &plane.access.ca_pem,
                &credential,
            );
            commands::write_private(&layout.kubeconfig(component), &text)?;
        }
    }
    if !options.controllers.is_empty() {
        plane.spawn(layout.controller_manager())?;
    }
    if options.scheduler {
        plane.spawn(layout.scheduler())?;
    }
    if options.kwok {
        start_kwok(&plane, &layout, deadline).await?;
    }
    let client = plane.own_client()?;
    create_nodes(&plane, &client, &options).await?;
    wait_for_parts(&plane, &client, &options, deadline).await?;
    Ok(plane)
}

/// Whether the name fits into file and cluster names.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(Error::Name {
            name: name.to_owned(),
        })
    }
}

/// Finds or builds the programs that a plane needs.
pub(crate) async fn locate(options: &Options) -> Result<Binaries, Error> {
    let mut programs = match options.kind {
        Kind::Real => vec![Program::Etcd, Program::KubeApiserver],
        Kind::Embedded => return Ok(Binaries::default()),
    };
    programs.extend((!options.controllers.is_empty()).then_some(Program::KubeControllerManager));
    programs.extend(options.scheduler.then_some(Program::KubeScheduler));
    programs.extend(options.kwok.then_some(Program::Kwok));
    let progress = options.progress.clone();
    tokio::task::spawn_blocking(move || binaries::locate_or_build(&programs, &progress))
        .await
        .map_err(|source| Error::Interrupted {
            plane: options.name.clone(),
            source,
        })?
        .map_err(|source| Error::Binaries {
            plane: options.name.clone(),
            source,
        })
}

fn directory(plane: &str) -> Result<TempDir, Error> {
    let prefix = format!("roadstead-{plane}-");
    let shm = Path::new(SHM);
    let roomy = fs4::available_space(shm).is_ok_and(|free| free >= SHM_FREE_BYTES_MIN);
    if roomy && let Ok(dir) = tempfile::Builder::new().prefix(&prefix).tempdir_in(shm) {
        return Ok(dir);
    }
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir()
        .map_err(|source| Error::File {
            doing: "creating a directory in",
            path: std::env::temp_dir(),
            source,
        })
}

async fn start_apiserver(plane: &mut Real, layout: &Layout<'_>, deadline: Instant) -> Result<(), Error> {
    for attempt in 1.. {
        plane.access.port = port::free().ok_or_else(|| Error::NoPort {
            plane: plane.access.name.clone(),
        })?;
        plane.apiserver = layout.apiserver(plane.access.port);
        plane.spawn(plane.apiserver.clone())?;
        match plane.wait_served(deadline).await {
            Err(Error::Died { tail, .. }) if port_was_taken(&tail) && attempt < PORT_ATTEMPTS => {
                plane.kill_apiserver();
            }
            result => return result,
        }
    }
    Ok(())
}

/// Starts kwok before any node is created, because nodes contain its port.
async fn start_kwok(plane: &Real, layout: &Layout<'_>, deadline: Instant) -> Result<(), Error> {
    for attempt in 1.. {
        let port = port::free().ok_or_else(|| Error::NoPort {
            plane: plane.access.name.clone(),
        })?;
        plane.spawn(layout.kwok(port))?;
        let probe = || async {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .ok()
                .map(drop)
        };
        match plane.until(deadline, "its port", KWOK, probe).await {
            Err(Error::Died { tail, .. }) if port_was_taken(&tail) && attempt < PORT_ATTEMPTS => {
                plane.kill(KWOK);
            }
            result => return result,
        }
    }
    Ok(())
}

async fn create_nodes(plane: &Real, client: &Client, options: &Options) -> Result<(), Error> {
    let api: Api<Node> = Api::all(client.clone());
    for node in &options.nodes {
        api.create(&PostParams::default(), &node.object())
            .await
            .map_err(|source| Error::Node {
                plane: plane.access.name.clone(),
                node: node.name.clone(),
                source: Box::new(source),
            })?;
    }
    Ok(())
}

/// Waits until the components beside the API server have finished their start.
async fn wait_for_parts(
    plane: &Real,
    client: &Client,
    options: &Options,
    deadline: Instant,
) -> Result<(), Error> {
    if options
        .controllers
        .iter()
        .any(|controller| controller == SERVICE_ACCOUNTS)
    {
        let api: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let probe = || async { api.get_opt("default").await.ok().flatten().map(drop) };
        plane
            .until(
                deadline,
                "service account default/default",
                CONTROLLER_MANAGER,
                probe,
            )
            .await?;
    }
    if options.kwok && !options.nodes.is_empty() {
        let api: Api<Node> = Api::all(client.clone());
        let probe = || async {
            let nodes = api.list(&ListParams::default()).await.ok()?;
            nodes.items.iter().all(is_ready).then_some(())
        };
        plane.until(deadline, "nodes", KWOK, probe).await?;
    }
    Ok(())
}

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
