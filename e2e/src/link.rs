//! A cable that can be cut: a TCP proxy in front of one API server.
//!
//! TLS passes through untouched, and the server's certificate names loopback, so a kubeconfig differs only in its port.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Connections that a link carries at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes carried at once in one direction of a connection.
const CHUNK: usize = 16 * 1024;

/// What a cut link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Open connections are reset, new ones are reset at once: a server that is down.
    Refuse,
    /// Open connections fall silent, new ones are accepted and stay silent: a network that swallows packets. What was sent
    /// meanwhile arrives after [`Link::heal`], as with TCP.
    Swallow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Cut(Cut),
}

/// A cable to one server. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    _carrier: AbortOnDropHandle<()>,
}

impl Link {
    /// A whole link to `server`, on a free port of loopback. Lives in the current tokio runtime.
    ///
    /// *Errors*: no port could be bound.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (state, watched) = watch::channel(State::Whole);
        let carrier = AbortOnDropHandle::new(tokio::spawn(carry_all(listener, server, watched)));
        Ok(Self {
            address,
            state,
            _carrier: carrier,
        })
    }

    /// Where the link listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL at this end of the link.
    pub fn server_url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Cuts the link; another cut replaces this one.
    pub fn cut(&self, cut: Cut) {
        self.state.send_replace(State::Cut(cut));
    }

    /// Makes the link whole again.
    pub fn heal(&self) {
        self.state.send_replace(State::Whole);
    }
}

async fn carry_all(listener: TcpListener, server: SocketAddr, state: watch::Receiver<State>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Why unwrapping is not needed: nobody closes the semaphore.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        // Why go on: accepting fails when the client has already gone.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let state = state.clone();
        connections.spawn(async move {
            carry(client, server, state).await;
            drop(place);
        });
    }
}

/// Carries one connection until an end closes it or the link refuses.
async fn carry(mut client: TcpStream, server: SocketAddr, state: watch::Receiver<State>) {
    let mut watched = state.clone();
    let refusal = watched.wait_for(|state| *state == State::Cut(Cut::Refuse));
    let refused = tokio::select! {
        biased;
        refusal = refusal => refusal.is_ok(),
        () = carry_both_ways(&mut client, server, state) => false,
    };
    if refused {
        // Why: a refused connection ends with a reset, as from a host where nobody listens.
        let _ = client.set_zero_linger();
    }
}

async fn carry_both_ways(client: &mut TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| *state == State::Whole).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    // Why the results are dropped: without it the link is only slower.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    tokio::join!(
        pump(client_read, server_write, state.clone()),
        pump(server_read, client_write, state.clone()),
    );
}

/// Carries one direction; stands still while the link swallows.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let whole = state.wait_for(|state| *state == State::Whole).await.is_ok();
        if !whole || to.write_all(&chunk[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests;
