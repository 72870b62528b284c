//! Names of the pod sets of an `AppWrapper`. *Source*: `spec/appwrapper.md 5.3`.

use std::fmt::Write as _;

use sha1::{Digest as _, Sha1};

/// Longest name of a pod set.
const NAME_LEN_MAX: usize = 63;
/// Length of the hash and its dash, in bytes.
const HASH_LEN: usize = 6;

/// The name of the pod set of this index: `<name>-<index>`, lower case.
///
/// Unlike the anchor: a name that is too long or has dots is shortened and gets a hash.
pub(super) fn pod_set(wrapper: &str, index: usize) -> String {
    let suffix = format!("-{index}");
    let lower = wrapper.to_lowercase();
    let most = NAME_LEN_MAX.saturating_sub(suffix.len());
    if lower.len() <= most && !lower.contains('.') {
        return lower + &suffix;
    }
    let mut name = lower.replace('.', "-");
    let mut end = name.len().min(most.saturating_sub(HASH_LEN));
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    name.truncate(end);
    let mut hash = String::new();
    for byte in Sha1::digest(wrapper.as_bytes()).iter().take(3) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash.truncate(HASH_LEN - 1);
    format!("{name}-{hash}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: appwrapper 5.3; jobs 15.80.
    #[test]
    fn every_wrapper_has_pod_sets_with_names_that_the_api_takes() {
        assert_eq!(pod_set("aw", 0), "aw-0");
        assert_eq!(pod_set("aw", 11), "aw-11");
        let is_label = |name: &str| {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            name.len() <= NAME_LEN_MAX && name.bytes().all(plain) && !name.ends_with('-')
        };
        let long = "a".repeat(253);
        let others = ["a.b", "a-b.c", long.as_str(), "x.y.z"];
        for name in others {
            assert!(is_label(&pod_set(name, 17)), "{}", pod_set(name, 17));
        }
        assert_ne!(pod_set("a.b", 0), pod_set("a-b", 0));
        assert_ne!(pod_set(&long, 0), pod_set(&"a".repeat(252), 0));
        assert_eq!(pod_set(&"b".repeat(61), 0).len(), 63);
    }
}
