//! The shape of the workspace: allowed imports between crates, crates with restricted dependencies, the layout of files.
//!
//! A change that needs a new import must also change the table here, so that reviewers see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use roadstead_kinds::TABLE;
use serde::Deserialize;

/// Each crate of the workspace with the crates of the workspace that it may import, for tests too.
const ARROWS: &[(&str, &[&str])] = &[
    ("kinds", &[]),
    ("core", &[]),
    ("api", &["kinds"]),
    ("jobs", &["kinds", "core", "api"]),
    ("convert", &["kinds", "core", "api", "jobs"]),
    ("kubeio", &["core"]),
    // Why core: `config check` finds what the controller of AppWrappers would refuse.
    ("serve", &["kinds", "core", "api"]),
    (
        "engine",
        &["kinds", "core", "api", "jobs", "convert", "kubeio", "serve"],
    ),
    ("kubeconfigs", &["kinds", "core", "api", "kubeio"]),
    (
        "manager",
        &[
            "kinds",
            "core",
            "api",
            "jobs",
            "convert",
            "kubeio",
            "serve",
            "engine",
            "kubeconfigs",
        ],
    ),
    (
        "worker",
        &["core", "api", "jobs", "convert", "kubeio", "serve", "engine"],
    ),
    // Why serve: `config check` reads a file with the very code of the processes.
    (
        "ctl",
        &[
            "kinds",
            "core",
            "api",
            "convert",
            "kubeio",
            "kubeconfigs",
            "serve",
        ],
    ),
    (
        "testkit",
        &[
            "api",
            "apiserver",
            "core",
            "engine",
            "kubeconfigs",
            "kubeio",
            "manager",
            "serve",
            "worker",
            "world",
        ],
    ),
    ("deploy", &["kinds", "api"]),
    ("apiserver", &["core"]),
    ("world", &["api", "core"]),
    (
        "e2e",
        &["kinds", "api", "apiserver", "convert", "core", "serve", "world"],
    ),
    // Why the programs: cargo compiles them at the same time as the demo, and not after it.
    ("demo", &["e2e", "manager", "worker", "ctl"]),
];

/// Outside crates that the core may import, except in tests.
const CORE_IMPORTS: &[&str] = &["indexmap", "jiff", "thiserror"];

/// Outside crates that only some crates of the workspace may declare.
const DOORS: &[(&str, &[&str])] = &[
    ("backoff", &["kubeio"]),
    ("dashmap", &["manager"]),
    ("axum", &["serve"]),
    ("anyhow", &["manager", "worker", "ctl", "deploy", "e2e"]),
];

/// Words with the only files or folders they may stand in.
const WORDS: &[(&str, &[&str])] = &[
    ("backoff::", &["shared/kubeio/src/retry.rs"]),
    ("dashmap::", &["manager/src/remote/registry.rs"]),
    ("axum::", &["shared/serve/"]),
    (
        "anyhow::",
        &[
            "manager/src/main.rs",
            "manager/ctl/src/main.rs",
            "worker/src/main.rs",
            "deploy/",
            "e2e/",
        ],
    ),
    // A queue without a limit, by all its names.
    ("unbounded_channel", &[]),
    ("mpsc::unbounded", &[]),
    ("mpsc::channel()", &[]),
    // It wakes waiters in random order, so a seed of the simulation would not be repeatable.
    ("sync::watch", &["e2e/", "shared/kubeio/src/latest.rs"]),
    // A test is run or deleted.
    ("#[ignore", &[]),
];

/// Most lines of a file.
const FILE_LINES_MAX: usize = 700;

const PREFIX: &str = "roadstead-";
/// This file names what it forbids.
const THIS_FILE: &str = "e2e/tests/it/architecture.rs";

#[derive(Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Package>,
    pub(super) workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Absent for what the product itself is made of, else `dev` or `build`.
    kind: Option<String>,
    features: Vec<String>,
}

impl Package {
    /// Its name in the tables.
    fn room(&self) -> &str {
        let room = self.name.strip_prefix(PREFIX);
        room.unwrap_or_else(|| panic!("{} has a name without {PREFIX}", self.name))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .map(|dependency| dependency.name.as_str())
    }
}

pub(super) fn metadata() -> Metadata {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All Rust files of the workspace by their path below its root.
pub(super) fn sources(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "rs") {
                let below = path.strip_prefix(root).unwrap().to_str().unwrap();
                found.insert(below.to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Whether a crate's name stands there as one, and not as a part of another path or word.
fn begins_a_path(text: &str, path: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    text.match_indices(path)
        .any(|(at, _)| !text[..at].ends_with(continues))
}

/// Fails with all complaints at once.
pub(super) fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_arrow_between_our_crates_is_in_the_table() {
    let packages = metadata().packages;
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let rooms: BTreeSet<_> = packages.iter().map(Package::room).collect();
    assert_eq!(
        rooms,
        allowed.keys().copied().collect(),
        "the table lists the crates of the workspace"
    );
    let mut complaints = Vec::new();
    for package in &packages {
        let room = package.room();
        let ours = package.names().filter_map(|name| name.strip_prefix(PREFIX));
        for other in ours.filter(|other| !allowed[room].contains(other)) {
            complaints.push(format!("{room} must not import {other}"));
        }
    }
    none(&complaints);
}

#[test]
fn decisions_are_made_of_three_outside_crates() {
    let packages = metadata().packages;
    let core = packages.iter().find(|package| package.room() == "core").unwrap();
    let product = core
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.is_none());
    let imports: BTreeSet<_> = product.map(|dependency| dependency.name.as_str()).collect();
    assert_eq!(imports, CORE_IMPORTS.iter().copied().collect());
}

/// Spec: safety 7. Planted bugs only serve to test the tests.
#[test]
fn only_the_testkit_switches_planted_bugs_on() {
    const BANK: &str = "bugbank";
    let mut complaints = Vec::new();
    for package in &metadata().packages {
        if package
            .features
            .get("default")
            .is_some_and(|on| on.iter().any(|f| f == BANK))
        {
            complaints.push(format!("{} plants bugs by default", package.room()));
        }
        let plants = |dependency: &Dependency| dependency.features.iter().any(|f| f == BANK);
        if package.room() != "testkit" && package.dependencies.iter().any(plants) {
            complaints.push(format!("{} plants bugs in what it imports", package.room()));
        }
        if package.room() != "testkit" && package.names().any(|name| name == "roadstead-testkit") {
            complaints.push(format!("{} imports the testkit", package.room()));
        }
    }
    none(&complaints);
}

#[test]
fn a_crate_with_a_door_is_declared_behind_it_only() {
    let mut complaints = Vec::new();
    for package in &metadata().packages {
        for (name, rooms) in DOORS {
            if package.names().any(|other| other == *name) && !rooms.contains(&package.room()) {
                complaints.push(format!("{} must not depend on {name}", package.room()));
            }
        }
    }
    none(&complaints);
}

#[test]
fn every_declared_crate_is_used() {
    let Metadata {
        packages,
        workspace_root,
    } = metadata();
    let sources = sources(&workspace_root);
    let folder = |package: &Package| {
        let folder = package.manifest_path.parent().unwrap();
        let below = folder.strip_prefix(&workspace_root).unwrap();
        format!("{}/", below.to_str().unwrap())
    };
    let folders: Vec<String> = packages.iter().map(folder).collect();
    let mut complaints = Vec::new();
    for (package, home) in packages.iter().zip(&folders) {
        // Why: a crate may live inside the folder of another one.
        let foreign = |path: &str| {
            folders
                .iter()
                .any(|f| f.len() > home.len() && path.starts_with(f.as_str()))
        };
        let own = sources
            .iter()
            .filter(|(path, _)| path.starts_with(home.as_str()) && !foreign(path));
        let own: Vec<&str> = own.map(|(_, text)| text.as_str()).collect();
        for name in package.names() {
            let name_in_code = name.replace('-', "_");
            let path = format!("{name_in_code}::");
            // Why: a crate can be there only to be compiled.
            let linked = format!("use {name_in_code} as _;");
            if !own
                .iter()
                .any(|text| begins_a_path(text, &path) || text.contains(&linked))
            {
                complaints.push(format!("{} declares {name} and does not use it", package.room()));
            }
        }
    }
    none(&complaints);
}

#[test]
fn words_with_a_door_stand_behind_it_only() {
    let sources = sources(&metadata().workspace_root);
    let mut complaints = Vec::new();
    for (word, places) in WORDS {
        let holders = sources
            .iter()
            .filter(|(path, text)| *path != THIS_FILE && text.contains(word))
            .map(|(path, _)| path);
        let (inside, outside): (Vec<_>, Vec<_>) =
            holders.partition(|path| places.iter().any(|place| path.starts_with(place)));
        complaints.extend(outside.iter().map(|path| format!("{path} must not say `{word}`")));
        if !places.is_empty() && inside.is_empty() {
            complaints.push(format!("nobody says `{word}`: its row is out of date"));
        }
    }
    none(&complaints);
}

/// Rooms in which kinds of jobs have a name: the table, what each kind does, and what plays or tests.
const KINDS_ARE_NAMED_IN: &[&str] = &[
    "shared/kinds/",
    "shared/jobs/",
    "shared/apiserver/",
    "shared/testkit/",
    "shared/world/",
    "e2e/",
    // The definition that we serve ourselves, and the words of the controller that we run ourselves.
    "shared/api/src/appwrapper/",
    "shared/core/src/appwrapper/",
];

/// What is left of a file when its tests are taken away.
fn without_tests(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests")
        .map_or(text, |(product, _)| product)
}

/// A new kind needs only a row and a file. Any other list of kinds would miss it.
#[test]
fn no_kind_of_jobs_is_named_outside_of_the_table_and_of_what_kinds_do() {
    let mut complaints = Vec::new();
    for (path, text) in sources(&metadata().workspace_root) {
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/");
        if is_test || KINDS_ARE_NAMED_IN.iter().any(|room| path.starts_with(room)) {
            continue;
        }
        // Why not these: limits and quotas speak of pods, and our processes are installed as Deployments.
        for kind in TABLE.iter().filter(|kind| !["", "apps"].contains(&kind.group)) {
            let names = [kind.framework, kind.kind, &kind.api_version()].map(|name| format!("\"{name}\""));
            let said = names
                .into_iter()
                .filter(|name| without_tests(&text).contains(name));
            complaints
                .extend(said.map(|name| format!("{path} names {name}; it should walk the table of kinds")));
        }
        if without_tests(&text).contains("batch::v1::Job") {
            complaints.push(format!(
                "{path} reads Jobs as such; it should walk the table of kinds"
            ));
        }
    }
    complaints.sort_unstable();
    complaints.dedup();
    none(&complaints);
}

/// Folders whose failures are typed (`shared/kubeio/src/failure.rs`).
const TYPED_FAILURES: &[&str] = &["shared/kubeio/", "shared/engine/", "worker/", "manager/src/"];

/// Whether a `Result` stands there whose error is a bare text.
fn has_text_as_error(text: &str) -> bool {
    text.match_indices("Result<").any(|(at, word)| {
        let (mut depth, mut arguments) = (1, vec![String::new()]);
        for letter in text[at + word.len()..].chars() {
            match letter {
                '<' | '(' => depth += 1,
                '>' | ')' => depth -= 1,
                ',' if depth == 1 => arguments.push(String::new()),
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if let Some(last) = arguments.last_mut().filter(|_| letter != ',') {
                last.push(letter);
            }
        }
        let mut named = arguments.iter().map(|argument| argument.trim());
        named.rfind(|argument| !argument.is_empty()) == Some("String")
    })
}

/// Code that gets only a text cannot decide what follows from a failure.
#[test]
fn a_failure_is_never_a_bare_text() {
    for (text, expect) in [
        ("fn a() -> Result<(), String> {", true),
        ("Output = Result<Option<Vec<K>>, String>> + Send", true),
        ("Result<\n    BTreeMap<String, u8>,\n    String,\n>", true),
        ("Result<Vec<String>, Failure>", false),
        ("Result<Option<(u8, String)>, Failure>", false),
    ] {
        assert_eq!(has_text_as_error(text), expect, "{text}");
    }
    let all = sources(&metadata().workspace_root);
    let is_typed = |path: &str| TYPED_FAILURES.iter().any(|folder| path.starts_with(folder));
    let typed = all.iter().filter(|(path, _)| is_typed(path));
    let wrong = typed.filter(|(_, text)| has_text_as_error(without_tests(text)));
    let complaints: Vec<String> = wrong
        .map(|(path, _)| {
            format!("{path}: the error of a `Result` is a `Failure` or an enum, never a `String`")
        })
        .collect();
    none(&complaints);
}

#[test]
fn files_are_small_and_a_module_is_never_called_mod() {
    let sources = sources(&metadata().workspace_root);
    assert!(sources.contains_key(THIS_FILE), "the walk sees the sources");
    let mut complaints = Vec::new();
    for (path, text) in &sources {
        if Path::new(path).file_name().is_some_and(|name| name == "mod.rs") {
            complaints.push(format!("{path}: `foo/mod.rs` is written `foo.rs`"));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            complaints.push(format!("{path} has {lines} lines, more than {FILE_LINES_MAX}"));
        }
    }
    none(&complaints);
}
