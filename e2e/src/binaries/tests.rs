use std::collections::BTreeMap;

use super::*;

fn program(dir: &Path, name: &str, mode: u32) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(name), "").unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn places(vars: &[(&str, &Path)]) -> Places {
    let vars: BTreeMap<_, _> = vars.iter().copied().collect();
    Places::from_env(&|name| vars.get(name).map(|path| path.as_os_str().to_owned()))
}

#[test]
fn each_program_is_looked_up_on_its_own() {
    let root = tempfile::tempdir().unwrap();
    let (assets, path) = (root.path().join("assets"), root.path().join("path"));
    program(&assets, "etcd", 0o755);
    program(&assets, "kwok", 0o644);
    program(&path, "etcd", 0o755);
    program(&path, "kwok", 0o755);
    let places = places(&[("KUBEBUILDER_ASSETS", &assets), ("PATH", &path)]);
    assert_eq!(
        places.find(Program::Etcd),
        Some(assets.join("etcd")),
        "assets come first"
    );
    assert_eq!(
        places.find(Program::Kwok),
        Some(path.join("kwok")),
        "a file without the x bit is no program"
    );
    assert_eq!(places.find(Program::KubeApiserver), None);
}

#[test]
fn a_controller_whose_definitions_must_fit_is_never_taken_from_the_machine() {
    let root = tempfile::tempdir().unwrap();
    program(root.path(), Program::JobSet.name(), 0o755);
    program(root.path(), Program::Kwok.name(), 0o755);
    let places = places(&[("PATH", root.path())]);
    assert_eq!(places.find(Program::JobSet), None);
    assert!(places.find(Program::Kwok).is_some());
}

#[test]
fn the_newest_envtest_version_wins() {
    let home = tempfile::tempdir().unwrap();
    let versions = home.path().join(".local/share/kubebuilder-envtest/k8s");
    for version in [
        "1.9.2-linux-amd64",
        "1.36.3-linux-amd64",
        "1.36.0-linux-amd64",
        "notes",
    ] {
        program(&versions.join(version), "etcd", 0o755);
    }
    let found = places(&[("HOME", home.path())]).find(Program::Etcd);
    assert_eq!(found, Some(versions.join("1.36.3-linux-amd64/etcd")));
}

#[test]
fn the_cache_directory_follows_the_variables() {
    let (own, xdg, home) = (Path::new("/own"), Path::new("/xdg"), Path::new("/home/me"));
    let cache = |vars: &[(&str, &Path)]| places(vars).cache;
    assert_eq!(
        cache(&[("ROADSTEAD_CACHE_DIR", own), ("XDG_CACHE_HOME", xdg)]),
        Some("/own/controlplane".into())
    );
    assert_eq!(
        cache(&[("XDG_CACHE_HOME", xdg), ("HOME", home)]),
        Some("/xdg/roadstead/controlplane".into())
    );
    assert_eq!(
        cache(&[("HOME", home)]),
        Some("/home/me/.cache/roadstead/controlplane".into())
    );
    assert_eq!(cache(&[]), None);
}
