//! Names of Workloads. *Source*: `spec/jobs.md 5.7`.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// Longest name of an object.
pub const NAME_LEN_MAX: usize = 253;
/// Hex digits of the hash at the end of a name.
const HASH_LEN: usize = 5;

/// The name of the Workload of an owner.
///
/// Wire: byte-exact with the reference, so that both find the same Workload for a job. `kind` is in its original case, `group` has no
/// version, and `extra` distinguishes several Workloads of one owner; it is usually empty.
pub fn workload_name(kind: &str, group: &str, owner_name: &str, owner_uid: &str, extra: &str) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("{kind}\n{group}\n{owner_name}\n{owner_uid}"));
    if !extra.is_empty() {
        hasher.update(format!("\n{extra}"));
    }
    let mut hash = String::new();
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash.truncate(HASH_LEN);
    let mut name = format!("{}-{owner_name}", kind.to_lowercase());
    let mut end = name.len().min(NAME_LEN_MAX - HASH_LEN - 1);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    format!("{name}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::workload_name;

    /// Spec: jobs 5.7, 15.2.
    #[test]
    fn names_are_those_of_the_reference() {
        let check = |kind, group, name, uid, extra, expected: &str| {
            assert_eq!(workload_name(kind, group, name, uid, extra), expected);
        };
        check("Job", "batch", "name", "uid", "", "job-name-ef3a1");
        check("Job", "batch", "name", "uid", "1", "job-name-2514c");
        check("Pod", "", "name", "uid", "", "pod-name-73eee");
        check("StatefulSet", "apps", "sts", "uid", "", "statefulset-sts-7c147");
        check("StatefulSet", "apps", "sts", "", "", "statefulset-sts-18b6e");
        check(
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            "lws-0",
            "uid",
            "",
            "leaderworkerset-lws-0-983da",
        );
    }

    /// Spec: jobs 15.3.
    #[test]
    fn long_names_are_cut_before_the_hash() {
        let name = workload_name("Job", "batch", &"n".repeat(300), "uid", "");
        assert_eq!(name.len(), 253);
        assert_eq!(name.rfind('-'), Some(247));
        assert_ne!(name, workload_name("Job", "batch", &"n".repeat(301), "uid", ""));
    }
}
