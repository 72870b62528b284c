//! A link that can be cut or can fail: a TCP proxy in front of one API server.
//!
//! TLS passes through unchanged, and the server's certificate names loopback, so a kubeconfig differs only in its port. A
//! link that reads requests ([`Failing`]) terminates TLS on both sides meanwhile.

mod answers;
mod dates;
mod events;
mod fuse;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub use answers::Failing;
use answers::Terminal;
pub use fuse::{Fuse, Side};

/// Connections that a link carries at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes carried at once in one direction of a connection.
const CHUNK: usize = 16 * 1024;

/// How a link is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Open connections are reset, and new ones too: as with a server that is down.
    Refuse,
    /// Open connections carry nothing, new ones are accepted and carry nothing: as in a network that drops packets. Data sent
    /// meanwhile arrives after [`Link::heal`], as with TCP.
    Swallow,
    /// As [`Cut::Swallow`], for answers only: requests on open connections arrive and are carried out.
    Answers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Cut(Cut),
    Failing(Failing),
}

impl State {
    /// Whether requests reach the server.
    fn carries_requests(self) -> bool {
        matches!(self, Self::Whole | Self::Cut(Cut::Answers))
    }

    /// Whether answers reach the client.
    fn carries_answers(self) -> bool {
        self == Self::Whole
    }

    /// Whether connections stay open, even if they carry nothing.
    fn keeps_open(self) -> bool {
        matches!(self, Self::Whole | Self::Cut(Cut::Swallow | Cut::Answers))
    }
}

/// Where a server listens.
#[derive(Clone)]
enum Place {
    Port(SocketAddr),
    Socket(PathBuf),
}

/// The server behind a link.
struct Server {
    place: Mutex<Place>,
    /// The certificates and state for answering in its place, if known.
    terminal: Option<Terminal>,
}

impl Server {
    fn place(&self) -> Place {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// PEM files of a server, with which a link can answer in its place.
#[derive(Debug, Clone, Copy)]
pub struct Certificates<'a> {
    /// The server's certificate.
    pub certificate: &'a Path,
    /// The server's key.
    pub key: &'a Path,
    /// The certificate of its authority.
    pub authority: &'a Path,
}

/// A link to one server. Dropping it closes all its connections.
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    server: Arc<Server>,
    _carrier: AbortOnDropHandle<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("address", &self.address)
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A working link to `server`, on a free port of loopback. Lives in the current tokio runtime. It cannot [`Link::fail`].
    ///
    /// *Errors*: no port could be bound.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        Self::lead_to(Place::Port(server), None).await
    }

    /// As [`Link::start`], to a server that listens on a Unix socket.
    ///
    /// *Errors*: no port could be bound.
    pub async fn start_to_socket(server: &Path) -> std::io::Result<Self> {
        Self::lead_to(Place::Socket(server.to_owned()), None).await
    }

    /// As [`Link::start`], and it can answer in the server's place.
    ///
    /// *Errors*: no port could be bound, or the files hold no certificate or key.
    pub async fn start_knowing(server: SocketAddr, files: Certificates<'_>) -> std::io::Result<Self> {
        let Certificates {
            certificate,
            key,
            authority,
        } = files;
        let terminal = Terminal::read(certificate, key, authority)?;
        Self::lead_to(Place::Port(server), Some(terminal)).await
    }

    async fn lead_to(server: Place, terminal: Option<Terminal>) -> std::io::Result<Self> {
        let server = Arc::new(Server {
            place: Mutex::new(server),
            terminal,
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (state, watched) = watch::channel(State::Whole);
        let carrier = AbortOnDropHandle::new(tokio::spawn(carry_all(listener, server.clone(), watched)));
        Ok(Self {
            address,
            state,
            server,
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

    /// Leads new connections to another server with the same certificate from now on. Open ones keep their server until they are
    /// cut.
    pub fn reroute(&self, server: SocketAddr) {
        *self.server.place.lock().unwrap_or_else(PoisonError::into_inner) = Place::Port(server);
    }

    /// Cuts the link; another cut replaces this one.
    pub fn cut(&self, cut: Cut) {
        self.state.send_replace(State::Cut(cut));
    }

    /// Makes requests fail like this from now on. Open connections are reset, because the link cannot read them.
    /// A link that does not know the server's certificate refuses everything.
    pub fn fail(&self, failing: Failing) {
        self.state.send_replace(State::Failing(failing));
    }

    /// Counts all requests by this fuse from now on; a fuse may be in several links. If it replaces another, connections stay
    /// open; if it is the first, they are reset, as by [`Link::fail`].
    pub fn put_in(&self, fuse: Arc<Fuse>) {
        if let Some(terminal) = &self.server.terminal {
            terminal.put_in(fuse);
        }
        self.fail(Failing::Counted);
    }

    /// How many requests, or events of watches, [`Link::fail`] has affected since the link was made.
    pub fn failed(&self) -> u32 {
        self.server.terminal.as_ref().map_or(0, Terminal::failed)
    }

    /// Ends every cut and failure of the link.
    pub fn heal(&self) {
        self.state.send_replace(State::Whole);
    }
}

async fn carry_all(listener: TcpListener, server: Arc<Server>, state: watch::Receiver<State>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Why no error: the semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        // Why continue: accepting fails if the client has already gone.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let (server, state) = (Arc::clone(&server), state.clone());
        connections.spawn(async move {
            carry(client, &server, state).await;
            drop(place);
        });
    }
}

/// Carries one connection until a side closes it, or the link's state ends it.
async fn carry(mut client: TcpStream, server: &Server, mut state: watch::Receiver<State>) {
    let quiet = State::Cut(Cut::Swallow);
    let Ok(begun) = state.wait_for(|state| *state != quiet).await.map(|state| *state) else {
        return;
    };
    let mut watched = state.clone();
    let reset = match begun {
        State::Cut(Cut::Refuse | Cut::Swallow) => true,
        State::Whole | State::Cut(Cut::Answers) => tokio::select! {
            biased;
            changed = watched.wait_for(|state| !state.keeps_open()) => changed.is_ok(),
            () = carry_on(&mut client, server.place(), state) => false,
        },
        State::Failing(failing) => tokio::select! {
            biased;
            changed = watched.wait_for(|state| *state != begun) => changed.is_ok(),
            () = answer(&mut client, server, failing) => false,
        },
    };
    if reset {
        // Why: a refused connection ends with a reset, as from a port without a listener.
        let _ = client.set_zero_linger();
    }
}

async fn answer(client: &mut TcpStream, server: &Server, failing: Failing) {
    if let (Some(terminal), Place::Port(address)) = (&server.terminal, server.place()) {
        // Why ignored: client and server handle the end of their connection themselves.
        let _ = terminal.serve(client, address, failing).await;
    }
}

async fn carry_on(client: &mut TcpStream, server: Place, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| state.carries_requests()).await.is_err() {
        return;
    }
    // Why ignored: without this option the link is only slower.
    let _ = client.set_nodelay(true);
    match server {
        Place::Port(address) => {
            let Ok(server) = TcpStream::connect(address).await else {
                return;
            };
            let _ = server.set_nodelay(true);
            carry_both_ways(client, server, state).await;
        }
        Place::Socket(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                carry_both_ways(client, server, state).await;
            }
        }
    }
}

async fn carry_both_ways(
    client: &mut TcpStream,
    server: impl AsyncRead + AsyncWrite,
    state: watch::Receiver<State>,
) {
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = split(server);
    tokio::join!(
        pump(client_read, server_write, state.clone(), State::carries_requests),
        pump(server_read, client_write, state.clone(), State::carries_answers),
    );
}

/// Carries one direction; pauses while the link swallows that direction.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
    carries: fn(State) -> bool,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let goes_on = state.wait_for(|state| carries(*state)).await.is_ok();
        if !goes_on || to.write_all(&chunk[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests;
