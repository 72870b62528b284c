//! Writes what an image holds beside the program: `image-parts NAME ROOT`.

use std::path::PathBuf;

use anyhow::Context as _;
use roadstead_deploy::parts;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().context("usage: image-parts NAME ROOT")?;
    let program = program
        .to_str()
        .context("the name of the program is no text")?
        .to_owned();
    let root = PathBuf::from(args.next().context("usage: image-parts NAME ROOT")?);
    parts::write(&program, &root)
}
