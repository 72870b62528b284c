//! Serves an embedded API server on loopback until it is interrupted: `cargo run -p roadstead-apiserver --example serve --
//! [PORT] [KUBECONFIG-FILE]`. The kubeconfig goes to the file, else to standard output.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::sync::Arc;

use roadstead_apiserver::{Clock, HttpsCaller, Options, Server, User};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let port = args.next().map_or(Ok(0), |port| port.parse())?;
    let mut options = Options::new(Clock::new(jiff::Timestamp::now), 1);
    options.caller = Arc::new(HttpsCaller::default());
    let server = Server::new(options);
    let listening = server.listen(port).await?;
    let kubeconfig = server.kubeconfig(&listening, User::admin());
    match args.next() {
        Some(file) => std::fs::write(file, kubeconfig)?,
        None => println!("{kubeconfig}"),
    }
    // Why a loop: nothing else plays the controllers that collect garbage.
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(200));
    loop {
        tokio::select! {
            biased;
            stopped = tokio::signal::ctrl_c() => return Ok(stopped?),
            _ = pace.tick() => {
                server.settle();
            }
        }
    }
}
