//! The programs of a control plane, and of controllers beside it: found on this machine, else built once from pinned Go
//! modules.
//!
//! Each program is looked for in this order: `KUBEBUILDER_ASSETS`, the folder of `setup-envtest`
//! (`kubebuilder-envtest/k8s/*`, newest first), `PATH`, the cache. A program that is in none of them is built into the cache:
//! `ROADSTEAD_CACHE_DIR`, else `$XDG_CACHE_HOME/roadstead`, else `~/.cache/roadstead`, below it
//! `controlplane/<module>-<hash of its pins>/`.
//!
//! A program is built only when [`locate_or_build`] is asked for it, so a test without third-party controllers builds none.
//! Those controllers are always built: their definitions and webhooks ([`Binaries::manifests`]) belong to their version.
//!
//! Limit: a program of a control plane that is found on the machine is used whatever its version.

mod build;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Progress;

/// The Kubernetes version that is built when none is found.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// Why the programs could not be found or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of `ROADSTEAD_CACHE_DIR`, `XDG_CACHE_HOME` and `HOME` is set.
    #[error("no place to keep built programs: set ROADSTEAD_CACHE_DIR to a directory")]
    NoCache,
    /// Nothing was found and nothing can be built.
    #[error(
        "missing {missing}: not in KUBEBUILDER_ASSETS, not in the setup-envtest folder, not on PATH, not in {}, and there is \
         no Go to build them: install Go 1.26 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that has \
         them",
        cache.display()
    )]
    NoGo {
        /// Names of the programs, comma separated.
        missing: String,
        /// Where built programs are kept.
        cache: PathBuf,
    },
    /// The Go build failed.
    #[error(
        "building {program} failed ({status}); the build needs Go 1.26 or newer and its module proxy once:\n{tail}"
    )]
    Build {
        /// The program that was built.
        program: &'static str,
        /// How the build ended.
        status: std::process::ExitStatus,
        /// The last lines of its output.
        tail: String,
    },
    /// The cache could not be used.
    #[error("{doing} {}", path.display())]
    Cache {
        /// The operation that failed.
        doing: &'static str,
        /// The path of that operation.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    fn cache(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Cache { doing, path, source }
    }
}

/// A program of a control plane, a controller beside it, or a tool of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The database.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// Jobs, garbage, namespaces, service accounts.
    KubeControllerManager,
    /// Places pods on nodes.
    KubeScheduler,
    /// Plays the kubelets.
    Kwok,
    /// Runs JobSets.
    JobSet,
    /// Runs RayClusters.
    Ray,
    /// Runs `TFJob`, `PyTorchJob`, `PaddleJob`, `XGBoostJob` and `JAXJob`.
    Training,
    /// Runs `MPIJob`.
    Mpi,
    /// Runs `AppWrapper`, for comparisons.
    AppWrapper,
    /// Runs Argo Workflows.
    Argo,
    /// Renders charts.
    Helm,
    /// Serves a registry of images, pushes and pulls.
    Crane,
    /// The command line of users.
    Kubectl,
    /// Runs real pods.
    Kubelet,
    /// The reference's controller, for comparisons.
    Kueue,
    /// Runs `TrainJob`.
    Trainer,
    /// Runs `LeaderWorkerSet`.
    Lws,
}

impl Program {
    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::JobSet => "jobset-controller",
            Self::Ray => "ray-operator",
            Self::Training => "training-operator",
            Self::Mpi => "mpi-operator",
            Self::AppWrapper => "appwrapper-operator",
            Self::Argo => "workflow-controller",
            Self::Helm => "helm",
            Self::Crane => "crane",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::Kueue => "kueue",
            Self::Trainer => "trainer-controller-manager",
            Self::Lws => "lws-controller",
        }
    }

    /// Whether a program that is found on the machine serves as well as a built one.
    fn may_be_found(self) -> bool {
        match self {
            Self::Etcd
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kwok
            | Self::Kubectl => true,
            Self::JobSet
            | Self::Ray
            | Self::Training
            | Self::Mpi
            | Self::AppWrapper
            | Self::Argo
            | Self::Helm
            | Self::Crane
            | Self::Kubelet
            | Self::Kueue
            | Self::Trainer
            | Self::Lws => false,
        }
    }
}

/// Where a program came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was found on the machine.
    Found,
    /// It was built from the pinned modules, now or earlier.
    Built,
}

/// The programs of a control plane on this machine.
#[derive(Debug, Clone, Default)]
pub struct Binaries {
    found: Vec<(Program, PathBuf, Origin)>,
}

impl Binaries {
    /// Where a program is; `None` if it was not asked for.
    pub fn path(&self, program: Program) -> Option<&Path> {
        self.found
            .iter()
            .find(|(each, _, _)| *each == program)
            .map(|(_, path, _)| path.as_path())
    }

    /// The files of a program's release, in the order in which they are applied to its cluster; none for a program that was
    /// found.
    pub fn manifests(&self, program: Program) -> Vec<PathBuf> {
        let built = self
            .found
            .iter()
            .find(|(each, _, origin)| *each == program && *origin == Origin::Built);
        let dir = built.and_then(|(_, path, _)| path.parent());
        dir.map(|dir| build::manifests(dir, program)).unwrap_or_default()
    }

    /// Where a program came from; `None` if it was not asked for.
    pub fn origin(&self, program: Program) -> Option<Origin> {
        self.found
            .iter()
            .find(|(each, _, _)| *each == program)
            .map(|(_, _, origin)| *origin)
    }
}

/// Finds the programs, and builds the missing ones. Blocks: a first build takes minutes, as a line of progress says.
/// Two processes never build at the same time, and a killed build leaves no partial program.
pub fn locate_or_build(programs: &[Program], progress: &Progress) -> Result<Binaries, Error> {
    let places = Places::of_this_machine();
    let cache = places.cache.clone().ok_or(Error::NoCache);
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for &program in programs {
        if let Some(path) = places.find(program) {
            found.push((program, path, Origin::Found));
        } else if let Some(path) = places
            .cache
            .as_deref()
            .and_then(|cache| build::built(cache, program))
        {
            found.push((program, path, Origin::Built));
        } else {
            missing.push(program);
        }
    }
    if !missing.is_empty() {
        let built = build::build(&cache?, &missing, progress)?;
        found.extend(
            built
                .into_iter()
                .map(|(program, path)| (program, path, Origin::Built)),
        );
    }
    Ok(Binaries { found })
}

/// The places where programs may be.
#[derive(Debug)]
struct Places {
    /// Directories to look into, in order.
    given: Vec<PathBuf>,
    cache: Option<PathBuf>,
}

impl Places {
    fn of_this_machine() -> Self {
        Self::from_env(&|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_env(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let home = env("HOME").map(PathBuf::from);
        let data = env("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(".local/share")));
        let mut given: Vec<PathBuf> = env("KUBEBUILDER_ASSETS").map(PathBuf::from).into_iter().collect();
        given.extend(
            data.into_iter()
                .flat_map(|data| newest_first(&data.join("kubebuilder-envtest/k8s"))),
        );
        given.extend(env("PATH").iter().flat_map(env::split_paths));
        let cache = env("ROADSTEAD_CACHE_DIR")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env("XDG_CACHE_HOME")?).join("roadstead")))
            .or_else(|| Some(home?.join(".cache/roadstead")))
            .map(|cache| cache.join("controlplane"));
        Self { given, cache }
    }

    fn find(&self, program: Program) -> Option<PathBuf> {
        let given = if program.may_be_found() {
            self.given.as_slice()
        } else {
            &[]
        };
        given
            .iter()
            .map(|dir| dir.join(program.name()))
            .find(|path| is_executable(path))
    }
}

/// The version directories of `setup-envtest` (`1.36.3-linux-amd64`), newest first.
fn newest_first(dir: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(Vec<u32>, PathBuf)> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name
                .to_str()?
                .split('-')
                .next()?
                .split('.')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?;
            Some((version, entry.path()))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
