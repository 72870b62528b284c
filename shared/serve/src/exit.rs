//! The exit codes of a process.

/// Why a process ends with an error; binaries turn it into an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// The user gave wrong arguments or a wrong file: the same command cannot succeed without a change.
    Usage,
    /// Anything else.
    Failure,
}

impl ExitKind {
    /// The process's exit code: 2 for usage, 1 otherwise.
    pub const fn code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Failure => 1,
        }
    }
}
