//! `roadstead man`: a manual page for each command, made of the same words as `--help`.

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::args::look::Man;
use crate::failure::Failure;
use crate::output;

/// Writes the pages into a folder.
pub fn run(args: &Man) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        Failure::new(
            format!("the manual pages are not written to {}", args.folder.display()),
            error.to_string(),
            "name a folder that exists and that you may write to",
        )
    })?;
    output::say(&format!(
        "look at them with: man {}",
        args.folder.join("roadstead.1").display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::run;
    use crate::args::look::Man;

    #[test]
    fn every_command_has_a_page_and_a_folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let args = Man {
            folder: folder.path().to_owned(),
        };
        run(&args).unwrap();
        for page in ["roadstead.1", "roadstead-get.1", "roadstead-cluster-join.1"] {
            let text = fs::read_to_string(folder.path().join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
        }
        let missing = Man {
            folder: folder.path().join("missing"),
        };
        let failure = run(&missing).unwrap_err();
        assert!(failure.what.contains("missing"), "{failure}");
    }
}
