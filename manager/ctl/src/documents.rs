//! Tests of the documents: each command line in them parses, and each link leads to a file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use crate::args::Cli;

/// Longest README, in words: a newcomer reads it in five minutes.
const README_WORDS_MAX: usize = 1_200;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents for readers, with their text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = vec![root().join("README.md"), root().join("shared/testkit/README.md")];
    for folder in ["deploy/docs", "e2e/docs"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The lines of the shell blocks of a document, with continued lines joined and comments removed.
fn shell_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for block in text.split("```sh\n").skip(1) {
        let block = block.split("\n```").next().unwrap_or_default();
        for line in block.replace("\\\n", " ").lines() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            lines.push(line.to_owned());
        }
    }
    lines
}

#[test]
fn every_roadstead_command_of_the_documents_is_one() {
    let mut seen = 0;
    for (path, text) in documents() {
        for line in shell_lines(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first() != Some(&"roadstead") {
                continue;
            }
            seen += 1;
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: `{line}` is refused: {error}", path.display());
            }
        }
    }
    assert!(
        seen >= 5,
        "only {seen} commands were found: are the shell blocks marked ```sh?"
    );
}

/// `kubectl` refuses to watch several kinds at once.
#[test]
fn a_watch_of_kubectl_in_the_documents_names_one_kind() {
    let mut seen = 0;
    for (path, text) in documents() {
        for line in shell_lines(&text) {
            let Some(words) = line.strip_prefix("kubectl get ") else {
                continue;
            };
            seen += 1;
            let watches = words
                .split_whitespace()
                .any(|word| matches!(word, "-w" | "--watch"));
            let kinds = words.split_whitespace().next().unwrap_or_default();
            assert!(!(watches && kinds.contains(',')), "{}: `{line}`", path.display());
        }
    }
    assert!(seen >= 2, "only {seen} lines were found");
}

#[test]
fn every_program_that_the_documents_run_with_cargo_exists() {
    let mut seen = 0;
    for (path, text) in documents() {
        for after in text.split("cargo run ").skip(1) {
            let command = after.split(['`', '\n', '#']).next().unwrap_or_default();
            let mut words = command.split_whitespace().skip_while(|word| *word != "--bin");
            let Some(name) = words.nth(1) else { continue };
            seen += 1;
            let places = [
                format!("e2e/src/bin/{name}.rs"),
                format!("e2e/{name}/src/main.rs"),
                format!("shared/testkit/src/bin/{name}.rs"),
            ];
            assert!(
                places.iter().any(|place| root().join(place).exists()),
                "{}: there is no program {name}",
                path.display()
            );
        }
    }
    assert!(seen >= 5, "only {seen} programs were found");
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    for (path, text) in documents() {
        for after in text.split("](").skip(1) {
            let target = after.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(
                file.exists(),
                "{} links to {target}, which does not exist",
                path.display()
            );
        }
    }
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(
        words <= README_WORDS_MAX,
        "README.md has {words} words; move what is not for newcomers to deploy/docs"
    );
}
