//! The long banks: the part of each in an ordinary run, and with the feature `nightly`.
//!
//! Invariant: the table in `e2e/README.md` describes the part of each bank that is played, and an ordinary run reports that it plays
//! only a part.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use roadstead_e2e::Progress;

/// How the sources ask for the feature.
const ASKS: [&str; 2] = ["or_nightly(", "feature = \"nightly\""];
/// How the rows of the table begin in the README.
const ROW: &str = "| `";

/// A bank of tests.
struct Bank {
    /// Its file, below this folder, without the extension.
    module: &'static str,
    ordinary: &'static str,
    nightly: &'static str,
}

const BANKS: &[Bank] = &[
    Bank {
        module: "conformance",
        ordinary: "150 generated traces are compared with a real API server",
        nightly: "500 traces",
    },
    Bank {
        module: "duel",
        ordinary: "not played, because the reference takes five minutes to build",
        nightly: "150 generated sequences, and 150 with each of two ways of fair sharing, are compared with the reference's own controller: conditions, statuses of queues, metrics",
    },
    Bank {
        module: "federation/calls",
        ordinary: "the manager dies once at each kind of write for a job, and at every eighth call of its start",
        nightly: "it dies before and after each call for a job, and at each call of its start",
    },
    Bank {
        module: "federation/kills",
        ordinary: "10 jobs, 10 kills of the manager at random moments",
        nightly: "50 jobs, 50 kills",
    },
    Bank {
        module: "federation/processes",
        ordinary: "the workers are killed 6 times",
        nightly: "30 times",
    },
    Bank {
        module: "federation/clocks",
        ordinary: "clocks of processes are wrong and jump",
        nightly: "they also drift apart, and processes come back with another clock",
    },
    Bank {
        module: "federation/past",
        ordinary: "an API server lags behind its etcd, is started anew, or lets pages expire",
        nightly: "it also goes on after it stood still, or its etcd forgets each second",
    },
    Bank {
        module: "federation/poison",
        ordinary: "each annotation and label of ours with a quarter of the nonsense",
        nightly: "with all of it",
    },
    Bank {
        module: "federation/servers",
        ordinary: "the manager loses its API server, or API server and etcd",
        nightly: "it also loses only its etcd",
    },
    Bank {
        module: "federation/strain",
        ordinary: "the API server of a worker gets a tenth of the time, or connections do not last",
        nightly: "the etcd of a worker gets a tenth of the time too",
    },
    Bank {
        module: "interop",
        ordinary: "not played, because the reference takes five minutes to build",
        nightly: "JobSets, PyTorchJobs and MPIJobs run with the reference as a worker of our manager, and with our workers under its manager",
    },
    Bank {
        module: "operator",
        ordinary: "not played, because the reference takes minutes to build",
        nightly: "AppWrappers end under the reference's operator, beside our engine, as under our controller",
    },
    Bank {
        module: "kinds/skypilot",
        ordinary: "pods as the client sends them",
        nightly: "the client itself too (needs the Debian packages that `.ci/nightly` names)",
    },
    Bank {
        module: "install",
        ordinary: "the processes run as their Deployments ask, without pods",
        nightly: "the worker's image also runs in real pods under a real kubelet, and queues real pods (needs root, and the Debian packages that `.ci/nightly` names)",
    },
    Bank {
        module: "images",
        ordinary: "the image of the command line holds the program of the tests",
        nightly: "all images hold static programs, which are built twice",
    },
];

/// The first in an ordinary run, the second with the feature `nightly`.
pub(crate) const fn or_nightly<T: Copy>(ordinary: T, nightly: T) -> T {
    if cfg!(feature = "nightly") {
        nightly
    } else {
        ordinary
    }
}

#[test]
fn the_run_says_which_banks_it_plays_in_part() {
    let modules: Vec<&str> = BANKS.iter().map(|bank| bank.module).collect();
    let modules = modules.join(", ");
    let said = if cfg!(feature = "nightly") {
        format!("nightly: these banks are played as a whole: {modules}")
    } else {
        format!("played in part, as a whole by .ci/nightly (e2e/README.md says what): {modules}")
    };
    // Why not `println`: what a test prints is not shown when it passes.
    Progress::stderr().step(&said);
}

#[test]
fn the_readme_lists_every_bank_with_what_is_played_of_it() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with(ROW)).collect();
    let wanted: Vec<String> = { BANKS.iter() }
        .map(|bank| format!("| `{}` | {} | {} |", bank.module, bank.ordinary, bank.nightly))
        .collect();
    assert_eq!(rows, wanted);
}

#[test]
fn every_source_that_asks_for_the_feature_is_a_bank() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut asking = BTreeSet::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if ASKS
                .iter()
                .any(|ask| fs::read_to_string(&path).unwrap().contains(ask))
            {
                let module = path.strip_prefix(&folder).unwrap().with_extension("");
                asking.insert(module.display().to_string());
            }
        }
    }
    asking.remove("nightly");
    let banks: BTreeSet<String> = BANKS.iter().map(|bank| bank.module.to_owned()).collect();
    assert_eq!(asking, banks);
}
