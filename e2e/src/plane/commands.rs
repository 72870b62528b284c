//! The command lines and configuration files of a plane's processes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{APISERVER, CONTROLLER_MANAGER, ETCD, Error, KWOK, SCHEDULER};
use crate::binaries::{Binaries, Program};
use crate::options::{Audit, Options};
use crate::pki::{FRONT_PROXY, Files, SERVICE_NETWORK};
use crate::process::Spec;

/// The audit log's file name in the plane's directory.
pub(super) const AUDIT_LOG: &str = "audit.log";
/// etcd's data directory, in the plane's directory.
pub(super) const STORAGE: &str = "etcd";
/// A copy of etcd's data directory.
pub(super) const STORAGE_SAVED: &str = "etcd-saved";
/// etcd's socket, in the plane's directory.
pub(super) const ETCD_SOCKET: &str = "etcd.sock";
const AUDIT_POLICY: &str = "audit-policy.yaml";
const SCHEDULER_CONFIG: &str = "scheduler.yaml";
const KWOK_CONFIG: &str = "kwok.yaml";
const POD_LOG: &str = "pod.log";

/// Network of the addresses of played pods; nothing routes it.
const POD_NETWORK: &str = "10.244.0.0/16";
/// The text that `kubectl logs` shows for any pod, in the format of a container runtime.
const POD_LOG_TEXT: &str =
    "1970-01-01T00:00:00.000000000Z stdout F this pod is played by kwok: no program runs in it\n";

/// Why so high: measurements are of the API server, so the other components must not limit themselves.
const CLIENT_QPS: u32 = 1000;
const CLIENT_BURST: u32 = 2000;
/// Number of objects of a kind that a controller handles at once.
const CONCURRENT_SYNCS: u32 = 20;
/// Size in megabytes at which the audit log is rotated. Why so large: a rotated log would lose requests from the count.
const AUDIT_LOG_MEGABYTES_MAX: u32 = 16_384;
/// Largest database of etcd, bytes.
const ETCD_BYTES_MAX: u64 = 8 << 30;

/// Inputs of the command lines of one plane.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) options: &'a Options,
    pub(super) binaries: &'a Binaries,
    pub(super) dir: PathBuf,
    pub(super) files: Files,
}

impl Layout<'_> {
    /// etcd's socket. Why a socket: it needs no free port, and only this user can reach it.
    pub(super) fn etcd_socket(&self) -> PathBuf {
        self.dir.join(ETCD_SOCKET)
    }

    /// The kubeconfig of a component.
    pub(super) fn kubeconfig(&self, component: &str) -> PathBuf {
        self.dir.join(format!("{component}.kubeconfig"))
    }

    /// Writes the files that do not depend on a port.
    pub(super) fn write_configs(&self) -> Result<(), Error> {
        let scheduler = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {}, qps: {CLIENT_QPS}, burst: {CLIENT_BURST}}}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
",
            self.kubeconfig(SCHEDULER).display()
        );
        write_private(&self.dir.join(SCHEDULER_CONFIG), &scheduler)?;
        let pod_log = self.dir.join(POD_LOG);
        write_private(&pod_log, POD_LOG_TEXT)?;
        let kwok = format!(
            "{}---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {{name: all}}
spec: {{logs: [{{logsFile: {}}}]}}
",
            include_str!("kwok.yaml"),
            pod_log.display()
        );
        write_private(&self.dir.join(KWOK_CONFIG), &kwok)?;
        write_private(&self.dir.join(AUDIT_POLICY), include_str!("audit-policy.yaml"))
    }

    pub(super) fn etcd(&self) -> Spec {
        let args = vec![
            format!("--data-dir={}", self.dir.join(STORAGE).display()),
            format!("--listen-client-urls=unix://{}", self.etcd_socket().display()),
            // Why: both must have the form host:port, and no process uses them.
            "--advertise-client-urls=http://127.0.0.1:0".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            format!("--quota-backend-bytes={ETCD_BYTES_MAX}"),
            "--log-level=warn".to_owned(),
        ];
        self.spec(ETCD, Program::Etcd, args)
    }

    pub(super) fn apiserver(&self, port: u16) -> Spec {
        let Files {
            ca,
            server_cert,
            server_key,
            token_key,
            token_public_key,
            proxy_ca,
            proxy_cert,
            proxy_key,
        } = &self.files;
        let mut args = vec![
            format!("--etcd-servers=unix://{}", self.etcd_socket().display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // Why: the default reconciler logs every 10 s that it refuses loopback addresses.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            format!("--client-ca-file={}", ca.display()),
            format!("--tls-cert-file={}", server_cert.display()),
            format!("--tls-private-key-file={}", server_key.display()),
            format!("--cert-dir={}", self.dir.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={}", token_key.display()),
            format!("--service-account-key-file={}", token_public_key.display()),
            // Why: without these flags the server forwards no request to aggregated APIs.
            format!("--requestheader-client-ca-file={}", proxy_ca.display()),
            format!("--requestheader-allowed-names={FRONT_PROXY}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", proxy_cert.display()),
            format!("--proxy-client-key-file={}", proxy_key.display()),
            // Why: this plugin taints new nodes, and only node-lifecycle-controller, which does not run here, would remove the taint.
            "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
        ];
        if self.options.kwok {
            // Why: pod logs come from kwok, whose nodes have a loopback address. Kubelets are found by the names of their nodes.
            args.push("--kubelet-preferred-address-types=InternalIP".to_owned());
        }
        match self.options.audit {
            Audit::Off => {}
            Audit::Metadata => args.extend([
                format!("--audit-policy-file={}", self.dir.join(AUDIT_POLICY).display()),
                format!("--audit-log-path={}", self.dir.join(AUDIT_LOG).display()),
                format!("--audit-log-maxsize={AUDIT_LOG_MEGABYTES_MAX}"),
            ]),
        }
        args.extend(self.options.apiserver_flags.iter().cloned());
        self.spec(APISERVER, Program::KubeApiserver, args)
    }

    pub(super) fn controller_manager(&self) -> Spec {
        let mut args = vec![
            format!("--kubeconfig={}", self.kubeconfig(CONTROLLER_MANAGER).display()),
            format!("--controllers={}", self.options.controllers.join(",")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--root-ca-file={}", self.files.ca.display()),
            format!(
                "--service-account-private-key-file={}",
                self.files.token_key.display()
            ),
            format!("--kube-api-qps={CLIENT_QPS}"),
            format!("--kube-api-burst={CLIENT_BURST}"),
        ];
        for kind in ["job", "gc", "namespace", "serviceaccount-token"] {
            args.push(format!("--concurrent-{kind}-syncs={CONCURRENT_SYNCS}"));
        }
        self.spec(CONTROLLER_MANAGER, Program::KubeControllerManager, args)
    }

    pub(super) fn scheduler(&self) -> Spec {
        let args = vec![
            format!("--config={}", self.dir.join(SCHEDULER_CONFIG).display()),
            "--secure-port=0".to_owned(),
        ];
        self.spec(SCHEDULER, Program::KubeScheduler, args)
    }

    /// The command line of kwok. On `port` kwok answers for the kubelets of all nodes.
    pub(super) fn kwok(&self, port: u16) -> Spec {
        let args = vec![
            format!("--kubeconfig={}", self.kubeconfig(KWOK).display()),
            format!("--config={}", self.dir.join(KWOK_CONFIG).display()),
            "--manage-all-nodes=true".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            format!("--node-port={port}"),
            format!("--cidr={POD_NETWORK}"),
            format!("--server-address=127.0.0.1:{port}"),
            // Why no leases: no process here watches them, and each node would write one every 10 s.
            "--node-lease-duration-seconds=0".to_owned(),
        ];
        self.spec(KWOK, Program::Kwok, args)
    }

    fn spec(&self, name: &'static str, program: Program, args: Vec<String>) -> Spec {
        Spec {
            name,
            // Why the bare name: a program that was not located is never started; if it is, the error names it.
            program: self
                .binaries
                .path(program)
                .unwrap_or_else(|| Path::new(program.name()))
                .to_owned(),
            args,
            env: Vec::new(),
            workdir: self.dir.clone(),
            doomed: self.dir.clone(),
            log: self.dir.join(format!("{name}.log")),
        }
    }
}

/// Writes a file that only this user may read, and replaces an existing one.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        // Why first: the mode below applies only to a new file.
        if path.exists() {
            fs::remove_file(path)?;
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?
            .write_all(text.as_bytes())
    };
    write().map_err(|source| Error::File {
        doing: "writing",
        path: path.to_owned(),
        source,
    })
}
