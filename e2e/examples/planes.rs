//! Starts control planes and keeps them until Ctrl-C: `cargo run -p roadstead-e2e --example planes -- 3 DIR`
//! writes `DIR/cluster-1.kubeconfig`, ... and says how long the start took and how much memory each process holds.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use roadstead_e2e::{ControlPlane, Federation, Node, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let count: usize = args
        .next()
        .map_or(Ok(1), |count| count.parse())
        .context("the first argument is a number")?;
    let dir = args.next().map(PathBuf::from);

    let mut options = (1..=count.max(1))
        .map(|at| Options::complete(format!("cluster-{at}")).with_node(Node::new("node-1", "64", "256Gi")));
    let manager = options.next().context("at least one plane")?;
    let started = Instant::now();
    let federation = Federation::start(manager, options.collect()).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{count} control planes up after {:.1} s",
        started.elapsed().as_secs_f64()
    )?;
    for plane in [&federation.manager].into_iter().chain(&federation.workers) {
        writeln!(out, "{} {}:{}", plane.name(), plane.server_url(), memory(plane))?;
        if let Some(dir) = &dir {
            plane.write_kubeconfig(&dir.join(format!("{}.kubeconfig", plane.name())))?;
        }
    }
    tokio::signal::ctrl_c().await?;
    federation.stop();
    Ok(())
}

/// Resident megabytes of each process.
fn memory(plane: &ControlPlane) -> String {
    let resident = |id: u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .map(|kilobytes| kilobytes / 1024)
    };
    let each = plane
        .process_ids()
        .into_iter()
        .map(|(name, id)| format!(" {name} {} MB", resident(id).unwrap_or_default()));
    each.collect()
}
