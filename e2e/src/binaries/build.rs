//! Building programs with Go into the cache.
//!
//! Invariant: a directory `<module>-<hash>` in the cache holds only whole programs: each is linked beside it and renamed into
//! it. Everything named `building-*` belongs to the holder of the lock, so the next holder removes what a killed one left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha1::{Digest, Sha1};

use super::{Error, Program, is_executable};
use crate::Progress;
use crate::process::{self, Guarded, Spec};

/// Raised when the way of building changes, so that older results are not used.
const RECIPE: &str = "1";
/// Characters of the hash in a directory's name.
const HASH_LENGTH: usize = 12;
/// Directories that belong to a running build start with this.
const BUILDING: &str = "building-";

/// A Go module that pins programs.
struct Module {
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// The required module whose version is the programs' version.
    pinned: &'static str,
    /// Packages whose variables `gitVersion`, ... the linker sets.
    variables: &'static [&'static str],
}

const KUBERNETES: Module = Module {
    name: "kubernetes",
    go_mod: include_str!("../../controlplane/kubernetes/go.mod"),
    go_sum: include_str!("../../controlplane/kubernetes/go.sum"),
    pinned: "k8s.io/kubernetes",
    variables: &["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"],
};
const ETCD: Module = Module {
    name: "etcd",
    go_mod: include_str!("../../controlplane/etcd/go.mod"),
    go_sum: include_str!("../../controlplane/etcd/go.sum"),
    pinned: "go.etcd.io/etcd/server/v3",
    variables: &[],
};
const KWOK: Module = Module {
    name: "kwok",
    go_mod: include_str!("../../controlplane/kwok/go.mod"),
    go_sum: include_str!("../../controlplane/kwok/go.sum"),
    pinned: "sigs.k8s.io/kwok",
    variables: &[],
};

fn module(program: Program) -> &'static Module {
    match program {
        Program::Etcd => &ETCD,
        Program::KubeApiserver | Program::KubeControllerManager | Program::KubeScheduler => &KUBERNETES,
        Program::Kwok => &KWOK,
    }
}

fn package(program: Program) -> &'static str {
    match program {
        Program::Etcd => "go.etcd.io/etcd/server/v3",
        Program::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
        Program::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
        Program::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
        Program::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
    }
}

impl Module {
    fn dir(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha1::new();
        for part in [RECIPE, self.go_mod, self.go_sum] {
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

    /// Linker flags: no debug information, and the version that the program reports (else it says v0.0.0).
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

/// Where an earlier build left a program.
pub(super) fn built(cache: &Path, program: Program) -> Option<PathBuf> {
    Some(module(program).dir(cache).join(program.name())).filter(|path| is_executable(path))
}

/// Builds the programs, unless another process did while we waited for it.
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
                "building {} {} with Go ({} of {}; once, a few minutes for Kubernetes)",
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

/// The lock is on the open file: the kernel drops it with the process.
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
    for (name, text) in [("go.mod", module.go_mod), ("go.sum", module.go_sum)] {
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
        // Why: a workspace or flags of the user's own must not leak into a pinned build; without C the result runs anywhere.
        env: [("CGO_ENABLED", "0"), ("GOFLAGS", ""), ("GOWORK", "off")]
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
    let path = dir.join(program.name());
    fs::rename(&output, &path).map_err(Error::cache("moving the program to", &path))?;
    fs::remove_dir_all(&scratch).map_err(Error::cache("removing", &scratch))
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
        let modules = [&KUBERNETES, &ETCD, &KWOK];
        assert!(modules.iter().all(|module| module.version().is_some()));
        let mut dirs: Vec<_> = modules.iter().map(|module| module.dir(cache)).collect();
        dirs.dedup();
        assert_eq!(dirs.len(), modules.len());
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
