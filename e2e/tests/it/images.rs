//! Images as `deploy/images` makes them: laid out, pushed to a registry, pulled, and their programs run.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use roadstead_e2e::Progress;
use roadstead_e2e::binaries::Program;
use roadstead_e2e::stage::deployed::free_ports;
use roadstead_e2e::stage::{Programs, told_by_cargo};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::shared::{output_of, output_within, tool};

/// Limit of one build of static programs. Two busy cores need half an hour, and the build may wait for the build directory.
const BUILD_DEADLINE: Duration = Duration::from_hours(2);

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `deploy/images OUT NAMES`, for [`build`].
pub(crate) fn images(out: &Path, names: &[&str]) -> Command {
    let mut command = Command::new(workspace().join("deploy/images"));
    command.arg(out).args(names);
    for name in told_by_cargo() {
        command.env_remove(name);
    }
    command
}

/// Makes images. Their programs are built unless `PROGRAMS` names the folder that has them.
pub(crate) async fn build(images: &mut Command) {
    let names: Vec<_> = images.as_std().get_args().skip(1).collect();
    let said = format!("making the images of {names:?} (static programs take up to half an hour)");
    Progress::stderr().step(&said);
    output_within(BUILD_DEADLINE, images).await;
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The digest of the image in a layout.
fn digest(layout: &Path) -> String {
    let index = read(&layout.join("index.json"));
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

/// A registry on loopback; it ends with this value.
struct Registry {
    address: String,
    crane: PathBuf,
    _process: Child,
}

impl Registry {
    async fn start() -> Self {
        let crane = tool(Program::Crane).await;
        let address = format!("{}:{}", Ipv4Addr::LOCALHOST, free_ports().unwrap()[0]);
        let mut process = Command::new(&crane)
            .args(["registry", "serve", "--address", &address])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let first = said.next_line().await.unwrap().unwrap_or_default();
        assert!(first.contains("serving on port"), "{first}");
        tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
        Self {
            address,
            crane,
            _process: process,
        }
    }

    /// Pushes the image of a layout, and unpacks what is pulled below `root`. Returns the digest under which it is served.
    async fn carry(&self, layout: &Path, name: &str, root: &Path) -> String {
        let reference = format!("{}/{name}:v1", self.address);
        let crane = || Command::new(&self.crane);
        output_of(crane().arg("push").arg(layout).arg(&reference)).await;
        output_of(crane().args(["validate", "--remote", &reference])).await;
        let packed = root.with_extension("tar");
        output_of(crane().args(["export", &reference]).arg(&packed)).await;
        std::fs::create_dir(root).unwrap();
        output_of(Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(root)).await;
        let served = output_of(crane().args(["digest", &reference])).await;
        served.trim().to_owned()
    }
}

/// What an image must hold beside its program.
fn assert_complete(root: &Path, name: &str) {
    let authorities = std::fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(authorities.contains("BEGIN CERTIFICATE"));
    let bill = read(&root.join("sbom.spdx.json"));
    let packages = bill["packages"].as_array().unwrap();
    let licenses = std::fs::read_dir(root.join("licenses")).unwrap().count();
    assert!(
        packages.len() > 100 && licenses > 100,
        "{} {licenses}",
        packages.len()
    );
    assert_eq!(bill["name"], name);
}

/// Design: 12. The programs of the tests stand for static ones, which `nightly` builds.
#[tokio::test]
async fn an_image_has_one_digest_when_it_is_made_twice_and_its_program_runs_when_it_was_pulled() {
    const NAME: &str = "roadstead";
    let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
    let scratch = TempDir::new().unwrap();
    let layouts = ["one", "two"].map(|each| scratch.path().join(each));
    for out in &layouts {
        build(images(out, &[NAME]).env("PROGRAMS", programs.command.parent().unwrap())).await;
    }
    let [one, two] = layouts.map(|out| out.join(NAME));
    assert_eq!(digest(&one), digest(&two));

    let root = scratch.path().join("root");
    let served = Registry::start().await.carry(&one, NAME, &root).await;
    assert_eq!(served, digest(&one));
    assert_complete(&root, NAME);
    let version = output_of(Command::new(root.join(NAME)).arg("--version")).await;
    assert_eq!(version.trim(), concat!("roadstead ", env!("CARGO_PKG_VERSION")));
}

#[cfg(feature = "nightly")]
mod built {
    use std::net::SocketAddr;

    use tokio::net::{TcpListener, UdpSocket};

    use super::*;

    /// Bytes of an image's only layer, packed, that it may have.
    const LAYER_MAX: u64 = 25_000_000;
    const NAMES: [&str; 3] = ["roadstead-manager", "roadstead-worker", "roadstead"];
    /// Where the name server of this test listens: a resolver always asks port 53.
    const NAME_SERVER: &str = "127.0.0.77:53";
    /// Where the name leads.
    const ANSWER: [u8; 4] = [127, 0, 0, 78];
    const NAME: &str = "api.east.example";
    const PORT: u16 = 6443;

    /// Bytes of the layer of the image in a layout.
    fn layer_size(layout: &Path) -> u64 {
        let digest = digest(layout);
        let (algorithm, hex) = digest.split_once(':').unwrap();
        let manifest = read(&layout.join("blobs").join(algorithm).join(hex));
        manifest["layers"][0]["size"].as_u64().unwrap()
    }

    /// Design: 12. Needs to be root, for the root folder of a process and for the port of a name server.
    #[tokio::test(flavor = "multi_thread")]
    async fn static_images_are_made_twice_with_one_digest_and_run_with_nothing_but_what_they_hold() {
        let scratch = TempDir::new().unwrap();
        for each in ["one", "two"] {
            let target = scratch.path().join("target").join(each);
            let out = scratch.path().join(each);
            build(images(&out, &NAMES).env("CARGO_TARGET_DIR", target)).await;
        }
        let registry = Registry::start().await;
        for name in NAMES {
            let [one, two] = ["one", "two"].map(|each| scratch.path().join(each).join(name));
            assert_eq!(digest(&one), digest(&two), "{name}");
            assert!(layer_size(&one) < LAYER_MAX, "{name}: {}", layer_size(&one));
            let root = scratch.path().join(format!("root-{name}"));
            assert_eq!(registry.carry(&one, name, &root).await, digest(&one), "{name}");
            assert_complete(&root, name);
            let version = output_of(inside(&root, name).arg("--version")).await;
            assert_eq!(version.trim(), format!("{name} {}", env!("CARGO_PKG_VERSION")));
        }
        asks_the_name_server(&scratch.path().join("root-roadstead")).await;
    }

    /// A program that sees nothing but its image.
    fn inside(root: &Path, name: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(root).arg(format!("/{name}"));
        command
    }

    /// The name of an API server is resolved by the program itself, without libraries of the machine.
    async fn asks_the_name_server(root: &Path) {
        let (address, _) = NAME_SERVER.rsplit_once(':').unwrap();
        std::fs::write(root.join("etc/resolv.conf"), format!("nameserver {address}\n")).unwrap();
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "east",
            "clusters": [{"name": "east", "cluster": {"server": format!("https://{NAME}:{PORT}")}}],
            "users": [{"name": "admin", "user": {"token": "none"}}],
            "contexts": [{"name": "east", "context": {"cluster": "east", "user": "admin"}}],
        });
        std::fs::write(root.join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let names = UdpSocket::bind(NAME_SERVER).await.unwrap();
        tokio::spawn(serve_names(names));
        let server = TcpListener::bind(SocketAddr::from((ANSWER, PORT))).await.unwrap();
        let mut command = inside(root, "roadstead");
        let running = command
            .args(["doctor", "--kubeconfig", "/kubeconfig"])
            .kill_on_drop(true)
            .spawn();
        let _process = running.unwrap();
        let accepted = tokio::time::timeout(Duration::from_mins(1), server.accept()).await;
        accepted
            .expect("the program must find the API server by its name")
            .unwrap();
    }

    /// Answers each question for an address (type A) with [`ANSWER`], and others with nothing.
    // Wire: RFC 1035 4.1.
    async fn serve_names(socket: UdpSocket) {
        const HEADER: usize = 12;
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            let asked = &question[..length];
            let mut end = HEADER;
            while asked[end] != 0 {
                end += usize::from(asked[end]) + 1;
            }
            let of_address = asked[end + 1..end + 3] == [0, 1];
            let mut answer = asked[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(of_address), 0, 0, 0, 0]);
            answer.extend(&asked[HEADER..end + 5]);
            if of_address {
                answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                answer.extend(ANSWER);
            }
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}
