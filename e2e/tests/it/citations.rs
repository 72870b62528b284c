//! Every numbered behaviour of the specification is covered by a test that cites it.
//!
//! A test cites with a docstring such as `/// Spec: admission-engine 9.2 B033 B034.`; a range `B027-B030` cites all of it. What
//! stands in numbered lists and tables elsewhere is cited by its section and number, `/// Spec: multikueue 11.34, 10.F12`, or
//! named in `shared/spec/deviations.md` with the reason why it is not so.

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

/// A numbered list, or a table whose rows have numbers, in a paper.
struct List {
    paper: &'static str,
    /// The headings between which it stands.
    from: &'static str,
    to: &'static str,
    /// How an item begins, before its number.
    item: &'static str,
    /// What follows its number.
    ends: &'static str,
    /// How a citation begins, before the number.
    cited_as: &'static str,
    /// How many it has.
    length: usize,
}

const LISTS: [List; 6] = [
    List {
        paper: "multikueue",
        from: "\n## 11. ",
        to: "\n## 12. ",
        item: "",
        ends: ". ",
        cited_as: "11.",
        length: 108,
    },
    List {
        paper: "multikueue",
        from: "\n## 10. ",
        to: "\n## 11. ",
        item: "| F",
        ends: " |",
        cited_as: "10.F",
        length: 42,
    },
    List {
        paper: "provisioning",
        from: "\n## 15. ",
        to: "\n## 16. ",
        item: "",
        ends: ". ",
        cited_as: "15.",
        length: 62,
    },
    List {
        paper: "safety",
        from: "\n## 4. ",
        to: "\n## 5. ",
        item: "| F",
        ends: " |",
        cited_as: "F",
        length: 34,
    },
    List {
        paper: "appwrapper",
        from: "\n## 7. ",
        to: "\n### 7.9 ",
        item: "- **B",
        ends: "** ",
        cited_as: "B",
        length: 146,
    },
    List {
        paper: "appwrapper",
        from: "\n### 7.9 ",
        to: "\n## 8. ",
        item: "- **N-",
        ends: "** ",
        cited_as: "N-",
        length: 35,
    },
];
/// All papers: the name of one ends the citations of another.
const PAPERS: [&str; 8] = [
    "admission-engine",
    "api",
    "appwrapper",
    "experience",
    "jobs",
    "multikueue",
    "provisioning",
    "safety",
];

impl List {
    /// What must be cited of it, as it is cited.
    fn items(&self, spec: &str) -> BTreeSet<String> {
        let from = spec.find(self.from).expect("the section is there");
        let length = spec[from..].find(self.to).expect("the next section is there");
        let number = |line: &str| {
            let rest = line.strip_prefix(self.item)?;
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = rest[..digits].parse().ok()?;
            rest[digits..].starts_with(self.ends).then_some(number)
        };
        let numbers = spec[from..from + length].lines().filter_map(number);
        numbers
            .map(|number| format!("{} {}{number}", self.paper, self.cited_as))
            .collect()
    }
}

/// Papers and places in them that a source cites, such as `multikueue 11.34`.
fn places(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut paper = None;
    for line in source.lines() {
        let Some(text) = line.trim_start().strip_prefix("/// ") else {
            paper = None;
            continue;
        };
        let text = match text.strip_prefix("Spec: ") {
            Some(cited) => cited,
            None if paper.is_some() => text,
            None => continue,
        };
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c))) {
            let word = word.trim_end_matches('.');
            if PAPERS.contains(&word) {
                paper = Some(word);
            } else if let Some(paper) = paper {
                found.insert(format!("{paper} {word}"));
            }
        }
    }
    found
}

/// What is named with a reason instead: the first column of the table.
fn deviations(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for line in text.lines() {
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        if let Some((paper, places)) = cell.and_then(|cell| cell.split_once(' ')) {
            named.extend(places.split(", ").map(|place| format!("{paper} {place}")));
        }
    }
    named
}

fn all_sources() -> Vec<String> {
    let mut files = Vec::new();
    for folder in SOURCES {
        sources(&workspace().join(folder), &mut files);
    }
    // What is cited here is an example.
    files.retain(|file| !file.ends_with("citations.rs"));
    let read = |file: PathBuf| fs::read_to_string(file).expect("a source");
    files.into_iter().map(read).collect()
}

#[test]
fn every_behaviour_and_every_fault_is_cited_by_a_test_or_named_as_a_deviation() {
    let papers = workspace().join("shared/spec");
    let read = |name: &str| fs::read_to_string(papers.join(name)).expect("a paper");
    let named = deviations(&read("deviations.md"));
    let mut wanted = BTreeSet::new();
    for list in LISTS {
        let items = list.items(&read(&format!("{}.md", list.paper)));
        assert_eq!(items.len(), list.length, "{}: {items:?}", list.from.trim());
        wanted.extend(items);
    }
    let unknown: Vec<_> = named.difference(&wanted).collect();
    assert!(
        unknown.is_empty(),
        "deviations from what no paper says: {unknown:?}"
    );
    let sources = all_sources();
    let cited: BTreeSet<String> = sources.iter().flat_map(|source| places(source)).collect();
    let missing = wanted
        .iter()
        .filter(|item| !cited.contains(*item) && !named.contains(*item));
    let missing: Vec<_> = missing.map(String::as_str).collect();
    assert!(missing.is_empty(), "no test cites {}", missing.join(", "));
}

#[test]
fn places_are_read_by_paper_over_several_lines() {
    let source = "
        /// Spec: multikueue 3.3 R4, 11.69; provisioning 15.3.
        /// And safety F12, which is said here; found by run 9
        fn one() {}
        /// 11.70
        fn other() {}
    ";
    let found = places(source);
    for place in ["multikueue 11.69", "provisioning 15.3", "safety F12"] {
        assert!(found.contains(place), "{place}: {found:?}");
    }
    assert!(!found.contains("multikueue 11.70") && !found.contains("provisioning F12"));
    let rows = "| What | is |\n|---|---|\n| multikueue 11.1, 10.F2 | x | y |";
    assert!(deviations(rows).contains("multikueue 10.F2"));
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
    let spec = fs::read_to_string(workspace().join("shared/spec/admission-engine.md")).unwrap();
    let mut missing = wanted(&spec);
    assert!(missing.len() > 150, "the specification was read");
    for source in all_sources() {
        for number in cited(&source) {
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
