//! Building programs with Go into the cache.
//!
//! Invariant: a directory `<module>-<hash>` in the cache holds only complete programs: each is linked beside it and renamed into
//! it. Everything named `building-*` belongs to the holder of the lock, so the next holder removes the rest of a killed build.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha1::{Digest, Sha1};

use super::{Error, Program, is_executable};
use crate::Progress;
use crate::process::{self, Guarded, Spec};

/// The version of the build's steps. A new one makes older results unused.
const RECIPE: &str = "1";
/// Characters of the hash in a directory's name.
const HASH_LENGTH: usize = 12;
/// Why: the user's own workspace or flags must not change a pinned build, and a program without C runs anywhere.
const BUILD_ENVIRONMENT: [(&str, &str); 3] = [("CGO_ENABLED", "0"), ("GOFLAGS", ""), ("GOWORK", "off")];
/// Directories that belong to a running build start with this.
const BUILDING: &str = "building-";

/// A Go module that pins programs.
struct Module {
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// A `main.go` of this project around the pinned module; `None`: the programs are packages of the pinned module.
    main_go: Option<&'static str>,
    /// The required module whose version is the programs' version.
    pinned: &'static str,
    /// Packages whose variables `gitVersion`, ... the linker sets.
    variables: &'static [&'static str],
    /// Files of the pinned module that are kept beside the programs: definitions and webhooks.
    manifests: &'static [&'static str],
}

const KUBERNETES: Module = Module {
    name: "kubernetes",
    go_mod: include_str!("../../controlplane/kubernetes/go.mod"),
    go_sum: include_str!("../../controlplane/kubernetes/go.sum"),
    main_go: None,
    pinned: "k8s.io/kubernetes",
    variables: &["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"],
    manifests: &[],
};
const ETCD: Module = Module {
    name: "etcd",
    go_mod: include_str!("../../controlplane/etcd/go.mod"),
    go_sum: include_str!("../../controlplane/etcd/go.sum"),
    main_go: None,
    pinned: "go.etcd.io/etcd/server/v3",
    variables: &[],
    manifests: &[],
};
const KWOK: Module = Module {
    name: "kwok",
    go_mod: include_str!("../../controlplane/kwok/go.mod"),
    go_sum: include_str!("../../controlplane/kwok/go.sum"),
    main_go: None,
    pinned: "sigs.k8s.io/kwok",
    variables: &[],
    manifests: &[],
};
const JOBSET: Module = Module {
    name: "jobset",
    go_mod: include_str!("../../controlplane/jobset/go.mod"),
    go_sum: include_str!("../../controlplane/jobset/go.sum"),
    main_go: None,
    pinned: "sigs.k8s.io/jobset",
    variables: &[],
    manifests: &[
        "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        "config/components/webhook/manifests.yaml",
    ],
};
const RAY: Module = Module {
    name: "ray",
    go_mod: include_str!("../../controlplane/ray/go.mod"),
    go_sum: include_str!("../../controlplane/ray/go.sum"),
    main_go: None,
    pinned: "github.com/ray-project/kuberay/ray-operator",
    variables: &[],
    manifests: &[
        "config/crd/bases/ray.io_rayclusters.yaml",
        "config/crd/bases/ray.io_rayjobs.yaml",
        "config/crd/bases/ray.io_rayservices.yaml",
    ],
};
const TRAINING: Module = Module {
    name: "training",
    go_mod: include_str!("../../controlplane/training/go.mod"),
    go_sum: include_str!("../../controlplane/training/go.sum"),
    main_go: Some(include_str!("../../controlplane/training/main.go")),
    pinned: "github.com/kubeflow/training-operator",
    variables: &[],
    manifests: &[
        "manifests/base/crds/kubeflow.org_tfjobs.yaml",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
        "manifests/base/crds/kubeflow.org_paddlejobs.yaml",
        "manifests/base/crds/kubeflow.org_xgboostjobs.yaml",
        "manifests/base/crds/kubeflow.org_jaxjobs.yaml",
        "manifests/base/webhook/manifests.yaml",
    ],
};
const MPI: Module = Module {
    name: "mpi",
    go_mod: include_str!("../../controlplane/mpi/go.mod"),
    go_sum: include_str!("../../controlplane/mpi/go.sum"),
    main_go: Some(include_str!("../../controlplane/mpi/main.go")),
    pinned: "github.com/kubeflow/mpi-operator",
    variables: &[],
    manifests: &["manifests/base/kubeflow.org_mpijobs.yaml"],
};
const APP_WRAPPER: Module = Module {
    name: "appwrapper",
    go_mod: include_str!("../../controlplane/appwrapper/go.mod"),
    go_sum: include_str!("../../controlplane/appwrapper/go.sum"),
    main_go: None,
    pinned: "github.com/project-codeflare/appwrapper",
    variables: &[],
    manifests: &["samples/wrapped-pod.yaml", "samples/wrapped-job.yaml"],
};
const ARGO: Module = Module {
    name: "argo",
    go_mod: include_str!("../../controlplane/argo/go.mod"),
    go_sum: include_str!("../../controlplane/argo/go.sum"),
    main_go: None,
    pinned: "github.com/argoproj/argo-workflows/v3",
    variables: &[],
    manifests: &[
        "manifests/base/crds/minimal/argoproj.io_clusterworkflowtemplates.yaml",
        "manifests/base/crds/minimal/argoproj.io_cronworkflows.yaml",
        "manifests/base/crds/minimal/argoproj.io_workflowartifactgctasks.yaml",
        "manifests/base/crds/minimal/argoproj.io_workfloweventbindings.yaml",
        "manifests/base/crds/minimal/argoproj.io_workflows.yaml",
        "manifests/base/crds/minimal/argoproj.io_workflowtaskresults.yaml",
        "manifests/base/crds/minimal/argoproj.io_workflowtasksets.yaml",
        "manifests/base/crds/minimal/argoproj.io_workflowtemplates.yaml",
    ],
};
const TRAINER: Module = Module {
    name: "trainer",
    go_mod: include_str!("../../controlplane/trainer/go.mod"),
    go_sum: include_str!("../../controlplane/trainer/go.sum"),
    main_go: None,
    pinned: "github.com/kubeflow/trainer/v2",
    variables: &[],
    manifests: &[
        "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        "manifests/base/webhook/manifests.yaml",
    ],
};
const LWS: Module = Module {
    name: "lws",
    go_mod: include_str!("../../controlplane/lws/go.mod"),
    go_sum: include_str!("../../controlplane/lws/go.sum"),
    main_go: None,
    pinned: "sigs.k8s.io/lws",
    variables: &[],
    manifests: &[
        "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        "config/webhook/manifests.yaml",
    ],
};

const HELM: Module = Module {
    name: "helm",
    go_mod: include_str!("../../controlplane/helm/go.mod"),
    go_sum: include_str!("../../controlplane/helm/go.sum"),
    main_go: None,
    pinned: "helm.sh/helm/v3",
    variables: &[],
    manifests: &[],
};
const IMAGES: Module = Module {
    name: "images",
    go_mod: include_str!("../../controlplane/images/go.mod"),
    go_sum: include_str!("../../controlplane/images/go.sum"),
    main_go: None,
    pinned: "github.com/google/go-containerregistry",
    variables: &[],
    manifests: &[],
};
const KUBECTL: Module = Module {
    name: "kubectl",
    go_mod: include_str!("../../controlplane/kubectl/go.mod"),
    go_sum: include_str!("../../controlplane/kubectl/go.sum"),
    main_go: Some(include_str!("../../controlplane/kubectl/main.go")),
    pinned: "k8s.io/kubectl",
    variables: &[],
    manifests: &[],
};
const KUBELET: Module = Module {
    name: "kubelet",
    go_mod: include_str!("../../controlplane/kubelet/go.mod"),
    go_sum: include_str!("../../controlplane/kubelet/go.sum"),
    main_go: None,
    pinned: "k8s.io/kubernetes",
    variables: KUBERNETES.variables,
    manifests: &[],
};
const KUEUE: Module = Module {
    name: "kueue",
    go_mod: include_str!("../../controlplane/kueue/go.mod"),
    go_sum: include_str!("../../controlplane/kueue/go.sum"),
    main_go: None,
    pinned: "sigs.k8s.io/kueue",
    variables: &[],
    manifests: &[
        "config/components/crd/bases/kueue.x-k8s.io_admissionchecks.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_cohorts.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_multikueueclusters.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_multikueueconfigs.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_provisioningrequestconfigs.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_topologies.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_workloadpriorityclasses.yaml",
        "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml",
        "config/components/webhook/manifests.yaml",
    ],
};

fn module(program: Program) -> &'static Module {
    match program {
        Program::Etcd => &ETCD,
        Program::KubeApiserver | Program::KubeControllerManager | Program::KubeScheduler => &KUBERNETES,
        Program::Kwok => &KWOK,
        Program::JobSet => &JOBSET,
        Program::Ray => &RAY,
        Program::Training => &TRAINING,
        Program::Mpi => &MPI,
        Program::AppWrapper => &APP_WRAPPER,
        Program::Argo => &ARGO,
        Program::Helm => &HELM,
        Program::Crane => &IMAGES,
        Program::Kubectl => &KUBECTL,
        Program::Kubelet => &KUBELET,
        Program::Kueue => &KUEUE,
        Program::Trainer => &TRAINER,
        Program::Lws => &LWS,
    }
}

fn package(program: Program) -> &'static str {
    match program {
        Program::Etcd => "go.etcd.io/etcd/server/v3",
        Program::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
        Program::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
        Program::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
        Program::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
        Program::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
        Program::JobSet => "sigs.k8s.io/jobset",
        Program::Ray => "github.com/ray-project/kuberay/ray-operator",
        Program::Training | Program::Mpi | Program::Kubectl => ".",
        Program::AppWrapper => "github.com/project-codeflare/appwrapper/cmd",
        Program::Argo => "github.com/argoproj/argo-workflows/v3/cmd/workflow-controller",
        Program::Helm => "helm.sh/helm/v3/cmd/helm",
        Program::Crane => "github.com/google/go-containerregistry/cmd/crane",
        Program::Kueue => "sigs.k8s.io/kueue/cmd/kueue",
        Program::Trainer => "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        Program::Lws => "sigs.k8s.io/lws/cmd",
    }
}

impl Module {
    fn dir(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha1::new();
        for part in [RECIPE, self.go_mod, self.go_sum].into_iter().chain(self.main_go) {
            hash.update(part);
            hash.update([0]);
        }
        let hex = format!("{:x}", hash.finalize());
        cache.join(format!("{}-{}", self.name, &hex[..HASH_LENGTH]))
    }

    /// The pinned version, such as `v1.36.3`.
    fn version(&self) -> Option<&'static str> {
        self.go_mod.lines().find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            (words.next() == Some(self.pinned))
                .then(|| words.next())
                .flatten()
                .filter(|word| word.starts_with('v'))
        })
    }

    /// Linker flags: no debug information, and the version that the program reports (otherwise v0.0.0).
    fn linker_flags(&self) -> String {
        let mut flags = vec!["-s -w".to_owned()];
        let version = self.version().unwrap_or_default();
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        let values = [
            ("gitVersion", version),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ];
        for package in self.variables {
            flags.extend(values.map(|(variable, value)| format!("-X {package}.{variable}={value}")));
        }
        flags.join(" ")
    }
}

/// The manifests of a program that was built into this directory.
pub(super) fn manifests(dir: &Path, program: Program) -> Vec<PathBuf> {
    let kept = module(program).manifests.iter();
    kept.map(|path| dir.join(file_name(path))).collect()
}

/// The last part of a path inside a module.
fn file_name(path: &'static str) -> &'static str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where an earlier build left a program.
pub(super) fn built(cache: &Path, program: Program) -> Option<PathBuf> {
    Some(module(program).dir(cache).join(program.name())).filter(|path| is_executable(path))
}

/// Builds the programs, unless another process built them while this one waited for the lock.
pub(super) fn build(
    cache: &Path,
    programs: &[Program],
    progress: &Progress,
) -> Result<Vec<(Program, PathBuf)>, Error> {
    if !go_is_there() {
        let missing = programs
            .iter()
            .map(|program| program.name())
            .collect::<Vec<_>>()
            .join(", ");
        return Err(Error::NoGo {
            missing,
            cache: cache.to_owned(),
        });
    }
    fs::create_dir_all(cache).map_err(Error::cache("creating", cache))?;
    let _lock = lock(cache, progress)?;
    clear(cache)?;
    let mut done = Vec::new();
    for (at, &program) in programs.iter().enumerate() {
        if built(cache, program).is_none() {
            progress.step(&format!(
                "building {} {} with Go ({} of {}; once, may take a few minutes)",
                program.name(),
                module(program).version().unwrap_or_default(),
                at + 1,
                programs.len()
            ));
            build_one(cache, program)?;
        }
        done.push((program, module(program).dir(cache).join(program.name())));
    }
    progress.step(&format!("control plane programs are in {}", cache.display()));
    Ok(done)
}

fn go_is_there() -> bool {
    Command::new("go")
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Takes the lock of the cache. The kernel drops it when the process ends.
fn lock(cache: &Path, progress: &Progress) -> Result<File, Error> {
    let path = cache.join("lock");
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(Error::cache("opening", &path))?;
    if file.try_lock().is_err() {
        progress.step("another process is building control plane programs; waiting for it");
        file.lock().map_err(Error::cache("locking", &path))?;
    }
    Ok(file)
}

fn clear(cache: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(cache).map_err(Error::cache("reading", cache))? {
        let entry = entry.map_err(Error::cache("reading", cache))?;
        if entry.file_name().to_string_lossy().starts_with(BUILDING) {
            fs::remove_dir_all(entry.path()).map_err(Error::cache("removing", &entry.path()))?;
        }
    }
    Ok(())
}

fn build_one(cache: &Path, program: Program) -> Result<(), Error> {
    let module = module(program);
    // Why the process id: the watcher of a builder that was just killed may still be removing its directory.
    let scratch = cache.join(format!("{BUILDING}{}-{}", program.name(), std::process::id()));
    fs::create_dir(&scratch).map_err(Error::cache("creating", &scratch))?;
    let files = [("go.mod", module.go_mod), ("go.sum", module.go_sum)].into_iter();
    for (name, text) in files.chain(module.main_go.map(|text| ("main.go", text))) {
        let path = scratch.join(name);
        fs::write(&path, text).map_err(Error::cache("writing", &path))?;
    }
    let output = scratch.join(program.name());
    let spec = Spec {
        name: program.name(),
        program: "go".into(),
        args: [
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            &module.linker_flags(),
            "-o",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain([output.to_string_lossy().into_owned(), package(program).to_owned()])
        .collect(),
        env: BUILD_ENVIRONMENT
            .map(|(name, value)| (name, value.to_owned()))
            .into(),
        workdir: scratch.clone(),
        doomed: scratch.clone(),
        log: scratch.join("log"),
    };
    let log = spec.log.clone();
    let mut go = Guarded::spawn(spec).map_err(Error::cache("starting Go in", &scratch))?;
    let status = go.wait().map_err(Error::cache("waiting for Go in", &scratch))?;
    if !status.success() {
        return Err(Error::Build {
            program: program.name(),
            status,
            tail: process::tail(&log),
        });
    }
    let dir = module.dir(cache);
    fs::create_dir_all(&dir).map_err(Error::cache("creating", &dir))?;
    keep_manifests(module, &scratch, &dir)?;
    let path = dir.join(program.name());
    fs::rename(&output, &path).map_err(Error::cache("moving the program to", &path))?;
    fs::remove_dir_all(&scratch).map_err(Error::cache("removing", &scratch))
}

/// Copies the manifests out of the module before the program is put in place, so a run that finds the program has them too.
fn keep_manifests(module: &Module, scratch: &Path, dir: &Path) -> Result<(), Error> {
    if module.manifests.is_empty() {
        return Ok(());
    }
    let mut go = Command::new("go");
    go.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module.pinned]);
    let listed = {
        go.current_dir(scratch)
            .envs(BUILD_ENVIRONMENT)
            .stdin(Stdio::null())
    }
    .output()
    .map_err(Error::cache("starting Go in", scratch))?;
    if !listed.status.success() {
        return Err(Error::Build {
            program: module.name,
            status: listed.status,
            tail: String::from_utf8_lossy(&listed.stderr).into_owned(),
        });
    }
    let source = PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim());
    for path in module.manifests {
        let (from, to) = (source.join(path), dir.join(file_name(path)));
        // Why not a copy of the file: files of modules are read-only, so a later copy could not replace it.
        let text = fs::read(&from).map_err(Error::cache("reading", &from))?;
        fs::write(&to, text).map_err(Error::cache("writing", &to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::KUBERNETES_VERSION;

    #[test]
    fn the_built_server_reports_the_pinned_version() {
        assert_eq!(KUBERNETES.version(), Some(KUBERNETES_VERSION));
        let flags = KUBERNETES.linker_flags();
        assert!(
            flags.contains(" -X k8s.io/component-base/version.gitVersion=v1.36.3 "),
            "{flags}"
        );
        assert!(
            flags.contains(" -X k8s.io/component-base/version.gitMinor=36 "),
            "{flags}"
        );
    }

    #[test]
    fn each_module_has_a_version_and_a_directory_of_its_own() {
        let cache = Path::new("/cache");
        let modules = [
            &KUBERNETES,
            &ETCD,
            &KWOK,
            &JOBSET,
            &RAY,
            &TRAINING,
            &MPI,
            &APP_WRAPPER,
            &ARGO,
            &KUBECTL,
            &KUEUE,
            &TRAINER,
            &LWS,
        ];
        assert!(modules.iter().all(|module| module.version().is_some()));
        let mut dirs: Vec<_> = modules.iter().map(|module| module.dir(cache)).collect();
        dirs.dedup();
        assert_eq!(dirs.len(), modules.len());
    }

    #[test]
    fn a_controller_has_its_manifests_beside_it() {
        let kept = manifests(Path::new("/cache/jobset-0"), Program::JobSet);
        let names: Vec<_> = kept
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        assert_eq!(names, ["jobset.x-k8s.io_jobsets.yaml", "manifests.yaml"]);
        assert!(manifests(Path::new("/cache"), Program::Etcd).is_empty());
    }

    #[test]
    fn what_a_killed_build_left_is_removed_and_programs_stay() {
        let cache = tempfile::tempdir().unwrap();
        let (left, kept) = (
            cache.path().join("building-kwok"),
            cache.path().join("kwok-0123456789ab"),
        );
        for dir in [&left, &kept] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("kwok"), "half").unwrap();
        }
        clear(cache.path()).unwrap();
        assert!(!left.exists());
        assert!(kept.join("kwok").exists());
    }
}
