//! Printing: data on stdout, progress on stderr, questions only on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::args::Format;
use crate::failure::{Code, Failure};

/// Prints one line of progress. A closed stderr is no reason to stop.
pub fn say(line: &str) {
    let _closed = writeln!(io::stderr().lock(), "{line}");
}

/// Prints the result in the requested format: `table` for reading, `name` for scripts.
pub fn result(
    format: Format,
    value: &impl Serialize,
    name: &str,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let unprintable = |why: String| Failure::new("the result cannot be printed", why, "try another --output");
    let text = match format {
        Format::Table => table(),
        Format::Json => serde_json::to_string(value).map_err(|e| unprintable(e.to_string()))?,
        Format::Yaml => serde_saphyr::to_string(value).map_err(|e| unprintable(e.to_string()))?,
        Format::Name => name.to_owned(),
    };
    if !text.is_empty() {
        let _closed = writeln!(io::stdout().lock(), "{}", text.trim_end());
    }
    Ok(())
}

/// Asks the user for consent, unless it was given. Without a terminal no user can answer, so `--yes` is required.
pub fn consent(given: bool, question: &str) -> Result<(), Failure> {
    if given {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            "nothing was done",
            "there is no terminal to ask on",
            "read the plan above, then run the same command with --yes",
        )
        .code(Code::Usage));
    }
    let _closed = write!(io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    let _unreadable_is_no = io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(
            "nothing was done",
            "you said no",
            "run the same command again to go on",
        ))
    }
}
