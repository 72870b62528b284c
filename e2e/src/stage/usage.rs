//! What a process uses: CPU time and memory, as the kernel says.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use crate::process::Guarded;

/// Memory of a process, in kilobytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now (`VmRSS`).
    pub resident_kb: u64,
    /// Peak resident memory (`VmHWM`).
    pub peak_kb: u64,
}

/// The error for a process that does not run.
pub(super) fn not_running() -> std::io::Error {
    std::io::Error::new(ErrorKind::NotFound, "it does not run")
}

/// CPU time of a process so far, user and system.
pub(super) fn cpu_of(process: &Guarded) -> std::io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    parse_cpu(&stat).ok_or_else(not_running)
}

/// Memory of a process.
pub(super) fn memory_of(process: &Guarded) -> std::io::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    parse_memory(&status).ok_or_else(not_running)
}

/// Ticks of the kernel's accounting in a second (`USER_HZ`, fixed by the interface).
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time in a `stat` file of the kernel.
pub(crate) fn parse_cpu(stat: &str) -> Option<Duration> {
    // Why after the bracket: the second field is a name that may contain spaces.
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    let ticks = f64::from(ticks(11)?) + f64::from(ticks(12)?);
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kilobytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Memory {
        resident_kb: kilobytes("VmRSS:")?,
        peak_kb: kilobytes("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_from_the_kernels_words() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(parse_cpu(stat), Some(Duration::from_secs(2)));
    }

    #[test]
    fn memory_is_read_from_the_kernels_words() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(
            parse_memory(status),
            Some(Memory {
                resident_kb: 1024,
                peak_kb: 2048
            })
        );
        assert_eq!(parse_memory("Name:\tzombie\n"), None);
    }
}
