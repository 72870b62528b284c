//! A third-party controller beside a real control plane: its definitions, its webhooks, its process.
//!
//! In a cluster the API server reaches its webhooks through a Service. Here that Service is a name for this machine, so the API
//! server dials loopback and still expects the Service's certificate, which the harness signs.
//!
//! Invariant: it listens on loopback only, as far as it can be configured. Its account has all rights: its behaviour is tested,
//! not its rights.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::dashboard::Dashboard;
use super::objects::{apply_named, define};
use super::ports::{free_ports, is_ready};
use super::usage::{self, Memory};
use super::{Error, PATIENCE, POLL, client_of, system};
use crate::binaries::{self, Binaries, Program};
use crate::pki::Authority;
use crate::process::{Guarded, Signal, Spec};
use crate::{ControlPlane, Progress, plane};

/// A third-party controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// `sigs.k8s.io/jobset`.
    JobSets,
    /// `github.com/ray-project/kuberay`.
    RayClusters,
    /// `github.com/kubeflow/training-operator`.
    TrainingJobs,
    /// `github.com/kubeflow/mpi-operator`.
    MpiJobs,
    /// `github.com/project-codeflare/appwrapper`, without its webhooks.
    ///
    /// Limit: it listens on port 9443 although its webhooks are off, so it runs once on a machine.
    AppWrappers,
    /// `github.com/argoproj/argo-workflows`.
    ///
    /// Limit: its health port is always 6060, so only one of several could answer there. The harness asks none.
    Workflows,
    /// `sigs.k8s.io/lws`.
    LeaderWorkerSets,
    /// `github.com/kubeflow/trainer`.
    TrainJobs,
}

/// The properties of one controller.
struct Part {
    program: Program,
    /// Its arguments, from the directory of its files and the ports of its health and webhooks.
    arguments: fn(&Path, [u16; 2]) -> Vec<String>,
    /// Its configuration file, from the same inputs; `None` if it reads none.
    configuration: Option<fn(&Path, [u16; 2]) -> Value>,
    health: Health,
    hooks: Option<Hooks>,
    /// Objects that must exist in its cluster before its start, from the port of its health.
    before: fn(u16) -> Vec<Value>,
    environment: &'static [(&'static str, &'static str)],
}

impl Part {
    /// A controller that needs nothing in particular.
    const fn of(program: Program) -> Self {
        Self {
            program,
            arguments: |_dir, _ports| Vec::new(),
            configuration: None,
            health: Health::Asked,
            hooks: None,
            before: |_health| Vec::new(),
            environment: &[],
        }
    }
}

/// How the harness knows that a controller is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    /// It answers on its configured port.
    Asked,
    /// It has no configurable port, so the harness does not ask it.
    Unasked,
}

/// The webhooks of a controller in its cluster.
struct Hooks {
    namespace: &'static str,
    service: &'static str,
    /// Label of the pods of its jobs: its webhooks for pods are called for no other pods; `None` if it has none for pods.
    ///
    /// Why here: its release adds this label to the generated webhooks by a patch.
    pod_label: Option<&'static str>,
    /// The directory of its certificate, below its own directory.
    certificates: &'static str,
}

const CONFIGURATION: &str = "config.yaml";
/// Namespace of the settings of the operator of `AppWrapper`s.
const WRAPPERS: &str = "appwrapper-system";
/// Namespace of the workflow controller's settings.
const ARGO: &str = "argo";

/// The argument with the path of the configuration file.
fn configured(dir: &Path, _ports: [u16; 2]) -> Vec<String> {
    let file = dir.join(CONFIGURATION);
    vec!["--config".to_owned(), file.display().to_string()]
}

/// The configuration of controllers that are built like the JobSet controller.
fn usual(api_version: &str, dir: &Path, [health, webhook]: [u16; 2]) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": "Configuration",
        "internalCertManagement": {"enable": false},
        "leaderElection": {"leaderElect": false},
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": dir},
    })
}

const fn trainer() -> Part {
    Part {
        arguments: configured,
        configuration: Some(|_dir, [health, webhook]| {
            json!({
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "kind": "Configuration",
                "certManagement": {"enable": false},
                "leaderElection": {"leaderElect": false},
                "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
                "metrics": {"bindAddress": "0", "secureServing": false},
                "webhook": {"host": "127.0.0.1", "port": webhook},
            })
        }),
        hooks: Some(Hooks {
            namespace: "kubeflow-system",
            service: "kubeflow-trainer-controller-manager",
            pod_label: None,
            // Why: this version reads the default place below the directory for temporary files.
            certificates: "k8s-webhook-server/serving-certs",
        }),
        ..Part::of(Program::Trainer)
    }
}

const fn app_wrapper() -> Part {
    Part {
        before: |health| {
            let configuration = json!({
                "webhooksEnabled": false,
                "controllerManager": {
                    "health": {"bindAddress": format!("127.0.0.1:{health}")},
                    "metrics": {"bindAddress": "0"}, "leaderElection": false,
                },
            });
            let named = json!({"name": "appwrapper-operator-config", "namespace": WRAPPERS});
            vec![
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WRAPPERS}}),
                // JSON is YAML.
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named,
                    "data": {"config.yaml": configuration.to_string()}}),
            ]
        },
        environment: &[("NAMESPACE", WRAPPERS)],
        // Why although its webhooks are off: its server still reads a certificate.
        hooks: Some(Hooks {
            namespace: WRAPPERS,
            service: "appwrapper-webhook-service",
            pod_label: None,
            certificates: "k8s-webhook-server/serving-certs",
        }),
        ..Part::of(Program::AppWrapper)
    }
}

impl Runs {
    const fn part(self) -> Part {
        match self {
            Self::JobSets => Part {
                arguments: configured,
                configuration: Some(|dir, ports| usual("config.jobset.x-k8s.io/v1alpha1", dir, ports)),
                hooks: Some(Hooks {
                    namespace: "jobset-system",
                    service: "jobset-webhook-service",
                    pod_label: Some("jobset.sigs.k8s.io/jobset-name"),
                    certificates: "",
                }),
                ..Part::of(Program::JobSet)
            },
            Self::LeaderWorkerSets => Part {
                arguments: configured,
                configuration: Some(|dir, ports| usual("config.lws.x-k8s.io/v1alpha1", dir, ports)),
                hooks: Some(Hooks {
                    namespace: "lws-system",
                    service: "lws-webhook-service",
                    pod_label: Some("leaderworkerset.sigs.k8s.io/name"),
                    certificates: "",
                }),
                ..Part::of(Program::Lws)
            },
            Self::TrainJobs => trainer(),
            Self::AppWrappers => app_wrapper(),
            Self::RayClusters => Part {
                arguments: |_dir, [health, _webhook]| {
                    let health = format!("--health-probe-bind-address=127.0.0.1:{health}");
                    vec![
                        health,
                        "--metrics-addr=0".to_owned(),
                        "--enable-leader-election=false".to_owned(),
                    ]
                },
                ..Part::of(Program::Ray)
            },
            Self::Workflows => Part {
                arguments: |dir, _ports| {
                    let kubeconfig = dir.join("kubeconfig").display().to_string();
                    // Why an image that does not exist: no container is ever started.
                    [
                        "--kubeconfig",
                        &kubeconfig,
                        "--namespace",
                        ARGO,
                        "--executor-image",
                        "none",
                    ]
                    .map(str::to_owned)
                    .into()
                },
                before: |_health| {
                    let off = json!({"enabled": false}).to_string();
                    let named = json!({"name": "workflow-controller-configmap", "namespace": ARGO});
                    vec![
                        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ARGO}}),
                        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named,
                            "data": {"metricsConfig": off, "telemetryConfig": off}}),
                    ]
                },
                // Why so short: tests wait for both. The first is the interval at which the controller handles a Workflow again. The
                // second is how long it treats a missing pod as not visible yet.
                environment: &[
                    ("LEADER_ELECTION_DISABLE", "true"),
                    ("DEFAULT_REQUEUE_TIME", "1s"),
                    ("RECENTLY_STARTED_POD_DURATION", "1s"),
                ],
                health: Health::Unasked,
                ..Part::of(Program::Argo)
            },
            Self::TrainingJobs => Part {
                arguments: |dir, [health, webhook]| {
                    vec![
                        format!("--health=127.0.0.1:{health}"),
                        format!("--webhook-port={webhook}"),
                        format!("--certificates={}", dir.display()),
                    ]
                },
                hooks: Some(Hooks {
                    namespace: "kubeflow",
                    service: "training-operator",
                    pod_label: None,
                    certificates: "",
                }),
                ..Part::of(Program::Training)
            },
            Self::MpiJobs => Part {
                arguments: |_dir, [health, _webhook]| vec![format!("--health=127.0.0.1:{health}")],
                ..Part::of(Program::Mpi)
            },
        }
    }
}

/// A running controller. It ends when it is dropped or this process dies; its applied objects stay.
#[derive(Debug)]
pub struct Controller {
    process: Guarded,
    _dashboard: Option<Dashboard>,
    _dir: TempDir,
}

impl Controller {
    /// Applies its definitions and webhooks and starts it. Returns when it is ready.
    ///
    /// *Errors*: its program is missing, it died (with the end of its log), it was not ready in time.
    /// *Limits*: a first build takes minutes; a real control plane only.
    pub async fn start(runs: Runs, plane: &ControlPlane, progress: &Progress) -> Result<Self, Error> {
        let (part, cluster) = (runs.part(), plane.name());
        let binaries = find_or_build(part.program, cluster, progress).await?;
        let dir = tempfile::Builder::new()
            .prefix("roadstead-controller-")
            .tempdir()
            .map_err(system("creating a directory for a controller"))?;
        let [health, _metrics, webhook] = free_ports()?;
        let client = client_of(plane)?;
        install_kinds(cluster, &client, &objects(&binaries, part.program)?).await?;
        for object in (part.before)(health) {
            apply_named(cluster, &client, object).await?;
        }
        let kubeconfig = dir.path().join("kubeconfig").display().to_string();
        let environment = part
            .environment
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let hooks = match &part.hooks {
            Some(hooks) => Some((hooks, certify(hooks, dir.path())?)),
            None => None,
        };
        let dashboard = match runs {
            Runs::RayClusters => Some(Dashboard::start().await.map_err(system("playing a dashboard"))?),
            Runs::JobSets
            | Runs::TrainingJobs
            | Runs::MpiJobs
            | Runs::AppWrappers
            | Runs::Workflows
            | Runs::LeaderWorkerSets
            | Runs::TrainJobs => None,
        };
        let proxy = dashboard
            .as_ref()
            .map(|dashboard| ("HTTP_PROXY", dashboard.url()));
        let spec = Spec {
            name: part.program.name(),
            program: path_of(&binaries, part.program)?.to_owned(),
            args: settings(&part, plane, dir.path(), [health, webhook])?,
            env: environment
                .chain([
                    ("KUBECONFIG", kubeconfig),
                    ("TMPDIR", dir.path().display().to_string()),
                ])
                .chain(proxy)
                .collect(),
            workdir: dir.path().to_owned(),
            doomed: dir.path().to_owned(),
            log: dir.path().join("log"),
        };
        progress.step(&format!("starting the {} of {cluster}", part.program.name()));
        let process = Guarded::spawn(spec).map_err(system(format!("starting {}", part.program.name())))?;
        let mut controller = Self {
            process,
            _dashboard: dashboard,
            _dir: dir,
        };
        let started = Instant::now();
        while part.health == Health::Asked && !is_ready(([127, 0, 0, 1], health).into()).await {
            controller.check(cluster)?;
            if started.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    what: format!("the {} of {cluster} is not ready", part.program.name()),
                    waited: PATIENCE,
                    detail: controller.log_tail(),
                });
            }
            sleep(POLL).await;
        }
        // Why last: while its process does not run, its webhooks make the API server refuse every pod and job.
        if let Some((hooks, authority)) = hooks {
            let webhooks = { objects(&binaries, part.program)?.into_iter() }
                .filter_map(|object| reachable(object, hooks, &authority, webhook));
            for object in around(hooks).into_iter().chain(webhooks) {
                apply_named(cluster, &client, object).await?;
            }
        }
        Ok(controller)
    }

    /// Ends the process of a controller that cannot be dropped, because it is shared.
    pub fn end(&self) {
        // Why ignored: it fails only if the process has ended by itself.
        let _ = self.process.signal(Signal::Kill);
    }

    /// Memory of its process.
    pub fn memory(&self) -> Result<Memory, Error> {
        let doing = || format!("reading the memory of {}", self.process.name());
        usage::memory_of(&self.process).map_err(system(doing()))
    }

    /// CPU time of its process so far, user and system.
    pub fn cpu(&self) -> Result<Duration, Error> {
        let doing = || format!("reading the CPU time of {}", self.process.name());
        usage::cpu_of(&self.process).map_err(system(doing()))
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// *Errors*: it has ended.
    fn check(&mut self, cluster: &str) -> Result<(), Error> {
        let name = format!("{} of {cluster}", self.process.name());
        let ended = self
            .process
            .ended()
            .map_err(system(format!("looking at {name}")))?;
        match ended {
            None => Ok(()),
            Some(status) => Err(Error::Died {
                name,
                status,
                tail: self.log_tail(),
            }),
        }
    }
}

pub(super) async fn find_or_build(
    program: Program,
    cluster: &str,
    progress: &Progress,
) -> Result<Binaries, Error> {
    let (progress, plane) = (progress.clone(), cluster.to_owned());
    let built = tokio::task::spawn_blocking(move || binaries::locate_or_build(&[program], &progress)).await;
    let built = built.map_err(|source| plane::Error::Interrupted {
        plane: plane.clone(),
        source,
    });
    built
        .and_then(|built| built.map_err(|source| plane::Error::Binaries { plane, source }))
        .map_err(Error::Plane)
}

pub(super) fn path_of(binaries: &Binaries, program: Program) -> Result<&Path, Error> {
    let none = || std::io::Error::new(std::io::ErrorKind::NotFound, "it was not built");
    let path = binaries.path(program).ok_or_else(none);
    path.map_err(system(format!("looking for {}", program.name())))
}

/// All objects in the manifests of its release.
pub(super) fn objects(binaries: &Binaries, program: Program) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    for path in binaries.manifests(program) {
        let doing = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).map_err(system(doing()))?;
        let wrong = |why: String| system(doing())(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        // Why no budget: it protects against untrusted files, and definitions with pod templates exceed it.
        let options = serde_saphyr::options! { with_snippet: false, budget: None };
        let read: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .map_err(|error| wrong(error.to_string()))?;
        all.extend(read);
    }
    Ok(all)
}

async fn install_kinds(cluster: &str, client: &Client, objects: &[Value]) -> Result<(), Error> {
    let doing = "reading a definition";
    let wrong = |error: serde_json::Error| system(doing)(error.into());
    let kinds = objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    let kinds: Result<Vec<CustomResourceDefinition>, _> =
        kinds.map(|kind| serde_json::from_value(kind.clone())).collect();
    define(cluster, client, &kinds.map_err(wrong)?).await
}

/// Makes the certificate of its webhooks. Returns the certificate of the authority, PEM.
fn certify(hooks: &Hooks, dir: &Path) -> Result<String, Error> {
    let certificates = |source| {
        Error::Plane(plane::Error::Certificates {
            plane: hooks.service.to_owned(),
            source,
        })
    };
    let dir = dir.join(hooks.certificates);
    fs::create_dir_all(&dir).map_err(system(format!("making {}", dir.display())))?;
    let authority = Authority::new(hooks.service).map_err(certificates)?;
    let shown = authority
        .webhook(hooks.service, hooks.namespace)
        .map_err(certificates)?;
    write(&dir, "tls.crt", &shown.cert)?;
    write(&dir, "tls.key", &shown.key)?;
    Ok(authority.pem())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(system(format!("writing {}", path.display())))
}

/// Writes the files that it reads at its start. Returns its arguments.
fn settings(part: &Part, plane: &ControlPlane, dir: &Path, ports: [u16; 2]) -> Result<Vec<String>, Error> {
    plane
        .write_kubeconfig(&dir.join("kubeconfig"))
        .map_err(Error::Plane)?;
    if let Some(configuration) = part.configuration {
        // JSON is YAML.
        write(dir, CONFIGURATION, &format!("{:#}\n", configuration(dir, ports)))?;
    }
    Ok((part.arguments)(dir, ports))
}

/// Its namespace, and the Service of its webhooks.
fn around(hooks: &Hooks) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hooks.namespace}}),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": hooks.service, "namespace": hooks.namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
    ]
}

/// A webhook configuration of its release that leads to the process on this port; `None` for another object.
fn reachable(mut object: Value, hooks: &Hooks, authority: &str, port: u16) -> Option<Value> {
    let kind = object["kind"].as_str()?.to_owned();
    let webhooks = object["webhooks"].as_array_mut()?;
    for webhook in webhooks {
        let client = &mut webhook["clientConfig"];
        client["service"]["name"] = hooks.service.into();
        client["service"]["namespace"] = hooks.namespace.into();
        client["service"]["port"] = port.into();
        client["caBundle"] = STANDARD.encode(authority).into();
        let is_for_pods = webhook["rules"][0]["resources"] == json!(["pods"]);
        if let Some(label) = hooks.pod_label.filter(|_| is_for_pods) {
            let labelled = json!([{"key": label, "operator": "Exists"}]);
            webhook["objectSelector"] = json!({"matchExpressions": labelled});
        }
    }
    object["metadata"] = json!({"name": format!("{}-{kind}", hooks.namespace).to_lowercase()});
    Some(object)
}
