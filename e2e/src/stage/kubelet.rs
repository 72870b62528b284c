//! A real kubelet with containerd beside a real control plane: pods run as containers on this machine.
//!
//! No kube-proxy runs. The one Service address that pods need, that of the API server, is an address of this machine as long as the
//! value lives, and leads to the API server. Webhooks are found by their endpoints (see [`BY_ENDPOINTS`](super::deployed::BY_ENDPOINTS)).
//!
//! Invariant: nothing listens on an address that another machine can reach. The kubelet serves logs on loopback, where the API server
//! finds it because the node is called `localhost` and names come first, unless kwok plays the nodes.
//!
//! Limit: needs root and Debian's packages containerd, runc and containernetworking-plugins; one at a time on a machine.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{fs, io};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::deployed::free_ports;
use super::{Error, PATIENCE, POLL, client_of, system};
use crate::binaries::{Program, locate_or_build};
use crate::process::{Guarded, Spec};
use crate::{ControlPlane, Progress};

/// Name of the node.
const NODE: &str = "localhost";
/// The network of the pods. A documentation network of RFC 5737, so it hides no network of the machine.
const PODS: &str = "198.51.100.0/24";
/// Image of the container that keeps a pod's network open. One of the archives for [`Kubelet::start`] must contain it.
pub const PAUSE: &str = "roadstead.test/pause:1";
/// Stops the remaining containers and removes their networks and mounts. Arguments: the socket of containerd, the directory.
const CLEAR: &str = r#"
ctr="timeout 20 ctr -a $1 -n k8s.io"
networks=$(for each in $($ctr containers ls -q); do $ctr containers info "$each"; done | grep -o 'cni-[0-9a-f-]*' | sort -u)
for task in $($ctr tasks ls -q); do $ctr tasks rm -f "$task"; done
sleep 1
pkill -KILL -f -- "-address $1"
for network in $networks; do ip netns delete "$network"; done
cut -d' ' -f2 /proc/mounts | grep -F "$2" | sort -r | xargs -r umount -l
"#;
/// Removes the links of a node that was killed: their routes would lead to its pods. Argument: the network of the pods.
const UNLINK: &str =
    r#"ip route show root "$1" | sed -n 's/.* dev \([^ ]*\).*/\1/p' | xargs -r -n 1 ip link delete"#;

/// A node with real pods. It ends with this value, and so do its containers.
#[derive(Debug)]
pub struct Kubelet {
    process: Guarded,
    containerd: Guarded,
    _service: Service,
    // Invariant: declared after the processes that use it.
    dir: TempDir,
}

/// The address of the Service `kubernetes`, forwarded to the API server.
#[derive(Debug)]
struct Service {
    address: Ipv4Addr,
    forwards: JoinHandle<()>,
}

impl Service {
    async fn start(plane: &ControlPlane, address: Ipv4Addr) -> Result<Self, Error> {
        ip("add", address).map_err(system(
            "giving this machine the address of Service kubernetes (are you root?)",
        ))?;
        let bound = TcpListener::bind((address, 443)).await;
        let listener = bound.map_err(system("listening as Service kubernetes"))?;
        let server = plane.address();
        let forwards = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        // Why ignored: the client notices a broken connection itself.
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Self { address, forwards })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.forwards.abort();
        // Why ignored: it fails only if the address is gone already.
        let _ = ip("del", self.address);
    }
}

/// `ip addr add` or `ip addr del` on loopback.
fn ip(verb: &str, address: Ipv4Addr) -> io::Result<()> {
    let address = format!("{address}/32");
    run("ip", &["addr", verb, &address, "dev", "lo"])
}

fn run(program: &str, args: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{program} {}: {said}", args.join(" "))))
}

impl Kubelet {
    /// Starts containerd and the kubelet beside a control plane without kwok, and waits until the node is ready.
    ///
    /// `images` are archives as `docker save` writes them; one of them is [`PAUSE`].
    ///
    /// *Errors*: not root, a package is missing, or the node does not become ready (with the end of the kubelet's log).
    pub async fn start(plane: &ControlPlane, images: &[PathBuf]) -> Result<Self, Error> {
        let found = spawn_blocking(|| locate_or_build(&[Program::Kubelet], &Progress::stderr())).await;
        let found = found
            .map_err(io::Error::other)
            .map_err(system("building the kubelet"))?;
        let found = found
            .map_err(io::Error::other)
            .map_err(system("building the kubelet"))?;
        let program = found.path(Program::Kubelet).map(Path::to_owned);
        let program = program
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .map_err(system("finding the kubelet"))?;

        run("sh", &["-ec", UNLINK, "sh", PODS]).map_err(system("clearing the network of the pods"))?;
        let client = client_of(plane)?;
        let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(client.clone(), "default");
        let until = Instant::now() + PATIENCE;
        let address = loop {
            let found = services.get_opt("kubernetes").await.ok().flatten();
            let found = found.and_then(|service| service.spec?.cluster_ip?.parse().ok());
            match found {
                Some(address) => break address,
                None if Instant::now() < until => sleep(POLL).await,
                None => return Err(late("Service kubernetes of the API server", String::new())),
            }
        };
        let service = Service::start(plane, address).await?;

        let dir = { tempfile::Builder::new() }
            .prefix("roadstead-node-")
            .tempdir()
            .map_err(system("creating a directory for the node"))?;
        let at = dir.path();
        // Why: containers that run as other users must read their volumes in it.
        fs::set_permissions(at, fs::Permissions::from_mode(0o755))
            .map_err(system("opening the directory of the node"))?;
        let socket = at.join("containerd.sock");
        let containerd = containerd(at, &socket).map_err(system("starting containerd"))?;
        let until = Instant::now() + PATIENCE;
        let socket_text = socket.display().to_string();
        while run("ctr", &["-a", &socket_text, "version"]).is_err() {
            if Instant::now() > until {
                return Err(late("containerd", containerd.log_tail()));
            }
            sleep(POLL).await;
        }
        for image in images {
            let image = image.display().to_string();
            run(
                "ctr",
                &["-a", &socket_text, "-n", "k8s.io", "images", "import", &image],
            )
            .map_err(system("importing an image"))?;
        }
        plane
            .write_kubeconfig(&at.join("kubeconfig"))
            .map_err(Error::Plane)?;
        let kubelet = kubelet(program, at, &socket)?;
        let started = Self {
            process: kubelet,
            containerd,
            _service: service,
            dir,
        };
        started.is_ready(&Api::all(client)).await?;
        Ok(started)
    }

    async fn is_ready(&self, nodes: &Api<Node>) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            let node = nodes.get_opt(NODE).await.ok().flatten();
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            if conditions
                .iter()
                .any(|each| each.type_ == "Ready" && each.status == "True")
            {
                return Ok(());
            }
            if Instant::now() > until {
                let said = conditions.iter().filter_map(|each| each.message.clone());
                let said = said.collect::<Vec<_>>().join("; ");
                return Err(late("the node", format!("{said}\n{}", self.process.log_tail())));
            }
            sleep(POLL).await;
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.process.stop();
        let socket = self.dir.path().join("containerd.sock");
        // Why ignored: after a failure the directory stays, and shows what is left.
        let _ = { Command::new("sh") }
            .args(["-c", CLEAR, "sh"])
            .args([&socket, self.dir.path()])
            .output();
        self.containerd.stop();
    }
}

fn late(what: &str, detail: String) -> Error {
    Error::NotReady {
        what: format!("{what} is not ready"),
        waited: PATIENCE,
        detail,
    }
}

fn containerd(dir: &Path, socket: &Path) -> io::Result<Guarded> {
    let at = |name: &str| dir.join(name).display().to_string();
    let network = json!({
        "cniVersion": "0.4.0", "name": "pods",
        "plugins": [{
            "type": "ptp", "ipMasq": false,
            "ipam": {
                "type": "host-local", "dataDir": at("addresses"), "subnet": PODS, "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    fs::create_dir(dir.join("cni"))?;
    fs::write(dir.join("cni/10-pods.conflist"), network.to_string())?;
    let configuration = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
"#,
        root = at("root"),
        state = at("state"),
        socket = socket.display(),
        cni = at("cni"),
    );
    fs::write(dir.join("containerd.toml"), configuration)?;
    Guarded::spawn(Spec {
        name: "containerd",
        program: "containerd".into(),
        args: vec!["--config".into(), at("containerd.toml")],
        env: Vec::new(),
        workdir: dir.to_owned(),
        doomed: dir.to_owned(),
        log: dir.join("containerd.log"),
    })
}

fn kubelet(program: PathBuf, dir: &Path, socket: &Path) -> Result<Guarded, Error> {
    let at = |name: &str| dir.join(name).display().to_string();
    let [port, healthz, ..] = free_ports()?;
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": "127.0.0.1", "port": port, "healthzPort": healthz, "readOnlyPort": 0,
        "podLogsDir": at("logs"),
        // Why anonymous: the kubelet listens on loopback only.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
        // Why: the machine is not the kubelet's own. The kubelet must neither change it nor evict pods because of its state.
        "failCgroupV1": false, "failSwapOn": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [], "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
        "evictionHard": {
            "imagefs.available": "0%", "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
        },
    });
    fs::write(dir.join("kubelet.json"), configuration.to_string())
        .map_err(system("configuring the kubelet"))?;
    let spec = Spec {
        name: "kubelet",
        program,
        args: vec![
            format!("--config={}", at("kubelet.json")),
            format!("--kubeconfig={}", at("kubeconfig")),
            format!("--root-dir={}", at("kubelet")),
            format!("--cert-dir={}", at("certificates")),
            format!("--hostname-override={NODE}"),
        ],
        env: Vec::new(),
        workdir: dir.to_owned(),
        doomed: dir.to_owned(),
        log: dir.join("kubelet.log"),
    };
    Guarded::spawn(spec).map_err(system("starting the kubelet"))
}
