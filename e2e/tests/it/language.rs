//! How comments read, as far as a program can tell: they name roles, and docs say something.

use super::architecture::{metadata, none, sources};

/// Words that hide the role which acts: the manager, the worker, the engine, the user, the administrator.
const ROLELESS: [&str; 5] = ["everybody", "nobody", "somebody", "who's", "whoever"];

/// What a comment's text does wrong, if anything.
fn complaint(comment: &str) -> Option<String> {
    let lower = comment.to_lowercase();
    let mut words = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .peekable();
    while let Some(word) = words.next() {
        if ROLELESS.contains(&word) {
            return Some(format!("\"{word}\": name the role"));
        }
        let is_number = |next: &&str| next.starts_with(|c: char| c.is_ascii_digit());
        if matches!(word, "seed" | "seeds") && words.peek().is_some_and(is_number) {
            return Some("a seed: name the test that shows the case".to_owned());
        }
    }
    let says_nothing = ["see the module", "it does.", "it is.", "this."].contains(&lower.trim());
    let points_away = lower.trim().starts_with("see the module");
    (says_nothing || points_away).then(|| "it says nothing: leave it out, or say what the item is".to_owned())
}

/// What is wrong with a file, each with its line.
fn complaints(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let doc = |at: usize| lines.get(at).and_then(|line| line.strip_prefix("/// "));
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(comment) = line.strip_prefix("//") else {
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        if let Some(wrong) = complaint(comment) {
            found.push((at + 1, wrong));
        }
        let is_alone = (at == 0 || !is_doc(at - 1)) && !is_doc(at + 1);
        // The name of a field or a path says where to look.
        let is_a_word = |doc: &str| {
            let is_name = doc.contains('`') || !doc.starts_with(char::is_alphabetic);
            doc.split_whitespace().count() == 1 && !is_name
        };
        if doc(at).is_some_and(is_a_word) && is_alone {
            found.push((
                at + 1,
                "a doc of one word: leave it out, or say what the item is".to_owned(),
            ));
        }
    }
    found
}

#[test]
fn a_comment_without_a_role_a_seed_and_an_empty_doc_are_found() {
    let wrong = [
        ("///", format!("{} asks is told.", ROLELESS[4])),
        ("// Why:", format!("{} waits for it.", ROLELESS[1])),
        ("//!", "Shown by seed 2908.".to_owned()),
        ("///", ["See", "the", "module."].join(" ")),
        ("///", "Name.".to_owned()),
    ];
    for (mark, text) in wrong {
        let line = format!("    {mark} {text}");
        assert_eq!(complaints(&line).len(), 1, "{line}");
    }
    let right = [
        "/// The user who submitted the job.",
        "// Why: the seeds of a run are printed.",
        "let text = \"somebody\";",
        "/// Names of clusters.\n///\n/// Sorted.",
    ];
    for line in right {
        assert!(complaints(line).is_empty(), "{line}");
    }
}

#[test]
fn comments_name_roles_and_docs_say_something() {
    let mut wrong = Vec::new();
    for (path, text) in sources(&metadata().workspace_root) {
        let found = complaints(&text);
        wrong.extend(found.iter().map(|(line, text)| format!("{path}:{line}: {text}")));
    }
    none(&wrong);
}
