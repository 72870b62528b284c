//! The limit of inotify instances of a user. An API server and a controller take several each, to watch their certificates.

use std::fs;
use std::path::Path;
use std::sync::Once;

use crate::Progress;

/// The kernel's file of the limit.
const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// Enough for about thirty planes with third-party controllers. The usual limit of 128 is not enough for the tests.
const INSTANCES_MIN: u32 = 1024;

static ONCE: Once = Once::new();

/// Raises the limit if it is too low and this user may do so; otherwise reports what an administrator can do.
pub(super) fn allow(progress: &Progress) {
    ONCE.call_once(|| {
        if !is_enough(Path::new(LIMIT)) {
            progress.step(&format!(
                "programs may fail with \"too many open files\": sysctl -w fs.inotify.max_user_instances={INSTANCES_MIN}"
            ));
        }
    });
}

/// Whether the limit is high enough or unknown.
fn is_enough(limit: &Path) -> bool {
    let read = || fs::read_to_string(limit).ok()?.trim().parse::<u32>().ok();
    let is_low = || read().is_some_and(|limit| limit < INSTANCES_MIN);
    if !is_low() {
        return true;
    }
    // Why ignored: the limit is read again.
    let _refused = fs::write(limit, INSTANCES_MIN.to_string());
    !is_low()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_raised_and_a_high_one_kept() {
        let dir = tempfile::tempdir().unwrap();
        let limit = dir.path().join("limit");
        for (before, after) in [("128\n", "1024"), ("8192\n", "8192\n")] {
            fs::write(&limit, before).unwrap();
            assert!(is_enough(&limit));
            assert_eq!(fs::read_to_string(&limit).unwrap(), after);
        }
        assert!(is_enough(&dir.path().join("none")), "other systems have none");
    }
}
