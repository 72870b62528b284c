//! Acts as a kubelet and the endpoint controller for a Deployment of Roadstead on a plane without nodes. The process runs with
//! exactly the flags, environment, files and service account that the Deployment names.
//!
//! Two things differ from a pod: files are in another directory, so the paths in the flags are replaced, and the address of the
//! API server and the token come in a kubeconfig.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{from_value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::objects::{apply, apply_error};
use super::{Error, PATIENCE, POLL, Programs, ports, system};
use crate::ControlPlane;
use crate::port;
use crate::process::{self, Guarded, Spec};

/// The flag with which an API server reaches webhooks by the endpoints of their Services instead of cluster addresses.
pub const BY_ENDPOINTS: &str = "--enable-aggregator-routing=true";
/// A documentation address of RFC 5737. Nothing is sent there; it only selects a route.
const ELSEWHERE: &str = "192.0.2.1:9";
/// Lifetime of its token in seconds: longer than any test.
const TOKEN_SECS: u32 = 24 * 60 * 60;
/// Label by which an `EndpointSlice` belongs to a Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// The process of a Deployment. It ends when it is dropped.
#[derive(Debug)]
pub struct Deployed {
    process: Guarded,
    // Invariant: declared after the process that reads it.
    _dir: TempDir,
}

/// Free ports for the values of an installation, so that several can run on one machine: health, metrics, webhook, visibility.
///
/// *Errors*: no port is free.
pub fn free_ports() -> Result<[u16; 4], Error> {
    let one = || {
        let none = || io::Error::new(io::ErrorKind::AddrInUse, "no free port on 127.0.0.1");
        port::free().ok_or_else(none).map_err(system("choosing a port"))
    };
    Ok([one()?, one()?, one()?, one()?])
}

impl Deployed {
    /// Starts the process of an existing Deployment, makes it the endpoint of the Services that select its pods, waits until it is
    /// ready, and writes the Deployment's status.
    ///
    /// *Errors*: an object that the Deployment names is missing, or the process does not become ready (with the end of its log).
    pub async fn start(plane: &ControlPlane, namespace: &str, name: &str) -> Result<Self, Error> {
        let client = super::client_of(plane)?;
        let failed = |what: &str| {
            let (cluster, what) = (plane.name().to_owned(), what.to_owned());
            move |source| apply_error(&cluster, what, source)
        };
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get(name).await.map_err(failed("the Deployment"))?;
        let spec = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        let missing = |what: &str| Error::NotReady {
            what: format!("{name} of {} has no {what}", plane.name()),
            waited: std::time::Duration::ZERO,
            detail: String::new(),
        };
        let pod = spec.ok_or_else(|| missing("pod"))?;
        let container = pod.containers.first().ok_or_else(|| missing("container"))?;
        let account = pod
            .service_account_name
            .as_deref()
            .ok_or_else(|| missing("account"))?;

        let dir = tempfile::Builder::new()
            .prefix("roadstead-pod-")
            .tempdir()
            .map_err(system("creating a directory for the pod"))?;
        let token = token(&client, namespace, account)
            .await
            .map_err(failed("a token"))?;
        let kubeconfig = dir.path().join("kubeconfig");
        plane
            .write_kubeconfig_for_token_via(&kubeconfig, &plane.server_url(), &token)
            .map_err(Error::Plane)?;
        let mut args = container.args.clone().unwrap_or_default();
        for mount in container.volume_mounts.iter().flatten() {
            let volumes = pod.volumes.iter().flatten();
            let map = { volumes }
                .find(|volume| volume.name == mount.name)
                .and_then(|volume| volume.config_map.as_ref())
                .ok_or_else(|| missing("ConfigMap to mount"))?;
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let map = maps.get(&map.name).await.map_err(failed("the ConfigMap"))?;
            let place = dir.path().join(&mount.name);
            write_all(&place, &map).map_err(system("mounting a ConfigMap"))?;
            for arg in &mut args {
                *arg = arg.replace(&mount.mount_path, &place.display().to_string());
            }
        }
        let programs = Programs::find_or_build(&crate::Progress::stderr())
            .await
            .map_err(Error::Programs)?;
        let (program, known) = if name.ends_with("manager") {
            (programs.manager, "roadstead-manager")
        } else {
            (programs.worker, "roadstead-worker")
        };
        let spec = Spec {
            name: known,
            program,
            args,
            env: vec![
                ("POD_NAME", format!("{name}-0")),
                ("KUBECONFIG", kubeconfig.display().to_string()),
            ],
            workdir: dir.path().to_owned(),
            doomed: dir.path().to_owned(),
            log: dir.path().join("log"),
        };
        let log = spec.log.clone();
        lead(&client, namespace, container)
            .await
            .map_err(failed("the endpoints"))?;
        let mut deployed = Self {
            process: Guarded::spawn(spec).map_err(system(format!("starting {name}")))?,
            _dir: dir,
        };
        deployed.wait(health_of(container), &log).await?;
        let replicas = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        // Why all: one process represents every replica here.
        let status = json!({"status": {
            "observedGeneration": deployment.metadata.generation, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
        }});
        deployments
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .map_err(failed("the status of the Deployment"))?;
        Ok(deployed)
    }

    async fn wait(&mut self, health: SocketAddr, log: &Path) -> Result<(), Error> {
        let started = Instant::now();
        while !ports::is_ready(health).await {
            let ended = self.process.ended().map_err(system("looking at the process"))?;
            if ended.is_some() || started.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    what: self.process.name().to_owned(),
                    waited: started.elapsed(),
                    detail: process::tail(log),
                });
            }
            sleep(POLL).await;
        }
        Ok(())
    }
}

async fn token(client: &Client, namespace: &str, account: &str) -> Result<String, kube::Error> {
    let request = json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECS}});
    let request: TokenRequest = from_value(request).map_err(kube::Error::SerdeError)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(made.status.and_then(|status| status.token).unwrap_or_default())
}

fn write_all(place: &Path, map: &ConfigMap) -> io::Result<()> {
    fs::create_dir_all(place)?;
    { map.data.iter().flatten() }.try_for_each(|(name, text)| fs::write(place.join(name), text))
}

fn port_of(container: &Container, name: &str) -> Option<u16> {
    let found = container
        .ports
        .iter()
        .flatten()
        .find(|port| port.name.as_deref() == Some(name));
    found.and_then(|port| u16::try_from(port.container_port).ok())
}

fn health_of(container: &Container) -> SocketAddr {
    (
        Ipv4Addr::LOCALHOST,
        port_of(container, "health").unwrap_or_default(),
    )
        .into()
}

/// This machine's outward address. Why not loopback: the API server refuses loopback endpoints.
///
/// *Errors*: the machine has no route.
pub fn address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(ELSEWHERE)?;
    Ok(socket.local_addr()?.ip())
}

/// Creates the endpoints of the Services that select the pod.
async fn lead(client: &Client, namespace: &str, container: &Container) -> Result<(), kube::Error> {
    let here = address().map_err(|error| kube::Error::Service(Box::new(error)))?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    for service in services.list(&ListParams::default()).await? {
        let name = service.name_any();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports: Vec<_> = ports
            .filter_map(|port| {
                let target = match port.target_port.as_ref()? {
                    IntOrString::Int(number) => u16::try_from(*number).ok()?,
                    IntOrString::String(name) => port_of(container, name)?,
                };
                Some(json!({"name": port.name, "port": target, "protocol": "TCP"}))
            })
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": namespace, "labels": {OF_SERVICE: name}},
            "endpoints": [{"addresses": [here.to_string()], "conditions": {"ready": true}}],
            "ports": ports,
        });
        apply(client, slice).await?;
    }
    Ok(())
}
