//! Compares the constants for keys with the specification, so that neither can get a name alone.

/// The specification, as the project keeps it.
const SPEC: &str = include_str!("../../../spec/api.md");

/// Source of the constants, in which the values are looked up.
const KEYS: &str = concat!(
    include_str!("../../src/constants/labels.rs"),
    include_str!("../../src/constants/annotations.rs"),
    include_str!("../../src/constants/finalizers.rs"),
    include_str!("../../src/constants/gates.rs"),
);

/// The rows of the tables in a section, as cells.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let start = SPEC.find(heading).unwrap();
    let section = &SPEC[start + heading.len()..];
    let end = section.find("\n#").unwrap_or(section.len());
    section[..end]
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Spec: api API-12.
#[test]
fn every_key_of_the_specification_has_a_constant() {
    let rows = rows("## API-12");
    assert!(rows.len() > 30, "the table was not found");
    for row in rows {
        for key in quoted(row[0]).filter(|key| *key != "true") {
            let value = match key.strip_suffix('*') {
                Some(prefix) => format!("\"{prefix}\""),
                None => format!("\"kueue.x-k8s.io/{key}\""),
            };
            assert!(KEYS.contains(&value), "no constant is {value}");
        }
    }
}
