//! How an amount is shown to people: the canonical text of a Kubernetes quantity.
//!
//! Invariant: `cpu` is shown from millicores in decimal, memory-like resources in powers of 1024, all else in decimal.
//! *Source*: `spec/api.md API-16`.

use crate::amount::Amount;
use crate::name::ResourceName;

const DECIMAL: [(&str, i64); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

const BINARY: [(&str, i64); 6] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

/// The canonical text of `amount` of `resource`, such as `1500m`, `2`, `1Gi` or `unlimited`.
pub fn print(resource: &ResourceName, amount: Amount) -> String {
    let value = amount.get();
    if amount.is_unlimited() {
        return "unlimited".to_owned();
    }
    let name = resource.as_str();
    if name == "cpu" {
        return if value % 1_000 == 0 {
            scaled(value / 1_000, &DECIMAL)
        } else {
            format!("{value}m")
        };
    }
    let binary = name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-");
    // Wire: below 1024 a binary quantity is printed in decimal, so 1000 bytes are "1k".
    if binary && value.unsigned_abs() >= 1_024 {
        scaled(value, &BINARY)
    } else {
        scaled(value, &DECIMAL)
    }
}

/// The number with the largest suffix that leaves no fraction.
fn scaled(value: i64, suffixes: &[(&str, i64)]) -> String {
    suffixes
        .iter()
        .find(|(_, size)| value != 0 && value % size == 0)
        .map_or_else(
            || value.to_string(),
            |(suffix, size)| format!("{}{suffix}", value / size),
        )
}

#[cfg(test)]
mod tests {
    use super::print;
    use crate::amount::Amount;
    use crate::name::ResourceName;

    /// Spec: api API-16.
    #[test]
    fn amounts_are_shown_as_canonical_quantities() {
        for (resource, value, text) in [
            ("cpu", 1_500, "1500m"),
            ("cpu", 9_000, "9"),
            ("cpu", 2_000_000, "2k"),
            ("cpu", 0, "0"),
            ("cpu", -500, "-500m"),
            ("memory", 1 << 30, "1Gi"),
            ("memory", 3 << 29, "1536Mi"),
            ("memory", 1_000, "1k"),
            ("memory", 1_025, "1025"),
            ("hugepages-2Mi", 2 << 20, "2Mi"),
            ("nvidia.com/gpu", 8, "8"),
            ("pods", 5_000, "5k"),
            ("pods", i64::MAX, "unlimited"),
        ] {
            assert_eq!(
                print(&ResourceName::from(resource), Amount::new(value)),
                text,
                "{resource} {value}"
            );
        }
    }
}
