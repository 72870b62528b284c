//! Every numbered behaviour of the specification is covered by a test that cites it.
//!
//! A test cites with a docstring such as `/// Spec: admission-engine 9.2 B033 B034.`; a range `B027-B030` cites all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the workspace that hold sources.
const SOURCES: [&str; 6] = ["shared", "manager", "worker", "kubeconfigs", "deploy", "e2e"];
/// Section whose behaviours need no test yet: topology is not built.
const NOT_BUILT: &str = "### 9.13 ";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Numbers of the behaviours that must be cited.
fn wanted(spec: &str) -> BTreeSet<u32> {
    let from = spec.find("\n## 9. ").expect("section 9 is there");
    let to = spec.find("\n## 10. ").expect("section 10 is there");
    let mut section = "";
    let mut numbers = BTreeSet::new();
    for line in spec[from..to].lines() {
        if line.starts_with("### ") {
            section = line;
        }
        if let Some(rest) = line.strip_prefix("- **B")
            && !section.starts_with(NOT_BUILT)
            && let Some(number) = leading_number(rest)
        {
            numbers.insert(number);
        }
    }
    numbers
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits == 3).then(|| text[..digits].parse().ok()).flatten()
}

/// Numbers that a source cites: in docstrings that begin with `Spec:` and name this paper, and in what follows of them.
fn cited(source: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut citing = false;
    for line in source.lines() {
        let Some(text) = line.trim_start().strip_prefix("/// ") else {
            citing = false;
            continue;
        };
        if let Some(papers) = text.strip_prefix("Spec: ") {
            citing = papers.contains("admission-engine");
        }
        if !citing {
            continue;
        }
        let mut last: Option<(u32, usize)> = None;
        for (at, _) in text.match_indices('B') {
            let Some(number) = leading_number(&text[at + 1..]) else {
                continue;
            };
            let from = match last {
                Some((first, end)) if matches!(&text[end..at], "-" | "..") => first,
                Some(_) | None => number,
            };
            numbers.extend(from..=number);
            last = Some((number, at + 4));
        }
    }
    numbers
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_numbered_behaviour_is_cited_by_a_test() {
    let root = workspace();
    let spec = fs::read_to_string(root.join("shared/spec/admission-engine.md")).unwrap();
    let mut files = Vec::new();
    for folder in SOURCES {
        sources(&root.join(folder), &mut files);
    }
    let mut missing = wanted(&spec);
    assert!(missing.len() > 150, "the specification was read");
    for file in files {
        for number in cited(&fs::read_to_string(&file).unwrap()) {
            missing.remove(&number);
        }
    }
    let list: Vec<String> = missing.iter().map(|number| format!("B{number:03}")).collect();
    println!("behaviours that no test cites: {}", list.len());
    assert!(list.is_empty(), "no test cites {}", list.join(" "));
}

#[test]
fn citations_are_read_with_lists_ranges_and_second_lines() {
    let source = "
        /// Spec: admission-engine 9.2 B033, B034 B036-B038.
        /// And B040, which is said here.
        fn one() {}
        /// Spec: multikueue B001.
        fn other() {}
        // Spec: admission-engine B002.
    ";
    assert_eq!(cited(source), BTreeSet::from([33, 34, 36, 37, 38, 40]));
}
