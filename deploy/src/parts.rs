//! What an image holds beside the program: certificate authorities, the licences of all crates, and a list of them (SPDX).
//!
//! Invariant: two runs on one source write the same bytes. The time is that of `SOURCE_DATE_EPOCH`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
const LICENSES: &str = "licenses";
const SBOM: &str = "sbom.spdx.json";
/// Beginnings of the names of licence files, in lower case.
const LICENSE_NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];
const PEM_LINE: usize = 64;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// Writes the authorities, the licences and the SPDX list for `program` below the folder `root`.
///
/// # Errors
///
/// The workspace has no such program, `cargo metadata` fails, or a file cannot be read or written.
pub fn write(program: &str, root: &Path) -> anyhow::Result<()> {
    let metadata = metadata()?;
    let packages = reached(&metadata, program)?;
    put(root, AUTHORITIES, authorities().as_bytes())?;
    for package in &packages {
        for (name, text) in licenses(package)? {
            let folder = format!("{LICENSES}/{}-{}", package.name, package.version);
            put(root, &format!("{folder}/{name}"), &text)?;
        }
    }
    let sbom = format!("{:#}\n", sbom(program, &packages, created()?));
    put(root, SBOM, sbom.as_bytes())
}

fn put(root: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let path = root.join(name);
    let folder = path.parent().unwrap_or(root);
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
}

fn metadata() -> anyhow::Result<Metadata> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(manifest)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("reading the output of cargo metadata")
}

/// The packages that a program is linked from: its own first, then the others by name.
fn reached<'a>(metadata: &'a Metadata, program: &str) -> anyhow::Result<Vec<&'a Package>> {
    let is_program = |target: &Target| target.name == program && target.kind.iter().any(|kind| kind == "bin");
    let own = { metadata.packages.iter() }
        .find(|package| package.source.is_none() && package.targets.iter().any(is_program))
        .with_context(|| format!("no package of the workspace has a program {program}"))?;
    let nodes: BTreeMap<&str, &Node> = { metadata.resolve.nodes.iter() }
        .map(|node| (&*node.id, node))
        .collect();
    let (mut seen, mut due) = (BTreeSet::new(), vec![&*own.id]);
    while let Some(id) = due.pop() {
        if seen.insert(id) {
            let linked =
                |dependency: &&Dependency| dependency.dep_kinds.iter().any(|each| each.kind.is_none());
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            due.extend(dependencies.filter(linked).map(|dependency| &*dependency.pkg));
        }
    }
    seen.remove(&*own.id);
    let mut others: Vec<&Package> = { metadata.packages.iter() }
        .filter(|package| seen.contains(&*package.id))
        .collect();
    others.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok([vec![own], others].concat())
}

/// The licence files of a package, by name.
fn licenses(package: &Package) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("listing {}", folder.display()))?
            .path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_license = LICENSE_NAMES
            .iter()
            .any(|start| name.to_lowercase().starts_with(start));
        if is_license && path.is_file() {
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            found.insert(name, text);
        }
    }
    Ok(found)
}

/// The authorities that Mozilla trusts, as one file of PEM.
fn authorities() -> String {
    let one = |der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(PEM_LINE)
            .filter_map(|line| std::str::from_utf8(line).ok())
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    };
    webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|der| one(der))
        .collect()
}

fn created() -> anyhow::Result<Timestamp> {
    let seconds = std::env::var("SOURCE_DATE_EPOCH").context("SOURCE_DATE_EPOCH is not set")?;
    let seconds = seconds.parse().context("SOURCE_DATE_EPOCH is no number")?;
    Timestamp::from_second(seconds).context("SOURCE_DATE_EPOCH is no time")
}

// Wire: https://spdx.github.io/spdx-spec/v2.3/.
fn sbom(program: &str, packages: &[&Package], created: Timestamp) -> Value {
    let id = |package: &Package| {
        let text = format!("{}-{}", package.name, package.version);
        let plain = text.chars().map(|letter| {
            if letter.is_ascii_alphanumeric() || letter == '.' {
                letter
            } else {
                '-'
            }
        });
        format!("SPDXRef-{}", plain.collect::<String>())
    };
    let described = |package: &&Package| {
        let place = match &package.source {
            Some(_) => format!("https://crates.io/crates/{}/{}", package.name, package.version),
            None => "NOASSERTION".to_owned(),
        };
        let license = package
            .license
            .as_deref()
            .map_or_else(|| "NOASSERTION".to_owned(), |text| text.replace('/', " OR "));
        json!({
            "SPDXID": id(package), "name": package.name, "versionInfo": package.version, "downloadLocation": place,
            "filesAnalyzed": false, "licenseConcluded": "NOASSERTION", "licenseDeclared": license,
            "copyrightText": "NOASSERTION",
        })
    };
    let own = packages.first().map(|package| id(package)).unwrap_or_default();
    let version = packages
        .first()
        .map(|package| package.version.clone())
        .unwrap_or_default();
    let mut relations = vec![json!({
        "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own,
    })];
    relations.extend(packages.iter().skip(1).map(|package| {
        json!({"spdxElementId": own, "relationshipType": "DEPENDS_ON", "relatedSpdxElement": id(package)})
    }));
    json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": program,
        "documentNamespace": format!("https://roadstead.dev/spdx/{program}-{version}-{}", created.as_second()),
        "creationInfo": {"created": created.to_string(), "creators": ["Tool: roadstead-deploy"]},
        "packages": packages.iter().map(described).collect::<Vec<_>>(),
        "relationships": relations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_crate_that_is_linked_and_none_that_only_tests_use() {
        let metadata = metadata().unwrap();
        for program in ["roadstead-manager", "roadstead-worker", "roadstead"] {
            let packages = reached(&metadata, program).unwrap();
            let names: Vec<&str> = packages.iter().map(|package| &*package.name).collect();
            for linked in ["kube", "rustls", "roadstead-core"] {
                assert!(names.contains(&linked), "{program} has {linked}");
            }
            for unlinked in ["proptest", "divan", "roadstead-testkit"] {
                assert!(!names.contains(&unlinked), "{program} has no {unlinked}");
            }
            let sbom = sbom(program, &packages, Timestamp::UNIX_EPOCH);
            assert_eq!(sbom["packages"].as_array().map(Vec::len), Some(packages.len()));
            assert_eq!(
                sbom["relationships"].as_array().map(Vec::len),
                Some(packages.len())
            );
        }
        assert!(reached(&metadata, "nothing").is_err());
    }

    #[test]
    fn authorities_are_written_as_certificates() {
        let text = authorities();
        let count = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len();
        assert!(count > 50);
        assert_eq!(text.matches("-----BEGIN CERTIFICATE-----\n").count(), count);
        assert!(text.lines().all(|line| line.len() <= PEM_LINE));
    }
}
