//! Writes the generated manifests into this crate's folder.

use std::{collections::BTreeSet, fs, path::Path, path::PathBuf};

use anyhow::Context as _;
use roadstead_deploy::charts::{CHART_DIR, charts, plain};
use roadstead_deploy::{
    CRD_DIR, MANIFEST_DIR, Manifest, RIGHTS_DIR, VISIBILITY_DIR, crds, rights, visibility,
};

fn main() -> anyhow::Result<()> {
    write(CRD_DIR, &crds()?)?;
    write(RIGHTS_DIR, &rights()?)?;
    write(VISIBILITY_DIR, &visibility()?)?;
    write(MANIFEST_DIR, &plain()?)?;
    write(CHART_DIR, &charts()?)
}

fn write(folder: &str, manifests: &[Manifest]) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut wanted = BTreeSet::new();
    for manifest in manifests {
        let path = folder.join(&manifest.file_name);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        fs::write(&path, &manifest.content).with_context(|| format!("writing {}", path.display()))?;
        wanted.insert(path);
    }
    // Why: otherwise the file of a removed kind would stay, and administrators would apply it.
    for path in files(&folder)? {
        if !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("listing {}", folder.display()))?
            .path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
