//! Writes the generated manifests in to this crate's folder.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use anyhow::Context as _;
use roadstead_deploy::{CRD_DIR, Manifest, RIGHTS_DIR, VISIBILITY_DIR, crds, rights, visibility};

fn main() -> anyhow::Result<()> {
    write(CRD_DIR, &crds()?)?;
    write(RIGHTS_DIR, &rights()?)?;
    write(VISIBILITY_DIR, &visibility()?)
}

fn write(folder: &str, manifests: &[Manifest]) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for manifest in manifests {
        let path = folder.join(&manifest.file_name);
        fs::write(&path, &manifest.content).with_context(|| format!("writing {}", path.display()))?;
    }

    // Why: a kind that is gone must not be applied from a file that nobody writes any more.
    let wanted: BTreeSet<OsString> = manifests
        .iter()
        .map(|manifest| OsString::from(&manifest.file_name))
        .collect();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
        if !wanted.contains(&entry.file_name()) {
            fs::remove_file(entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}
