//! The state of a server at one moment: to restore it, or to answer reads from it while the server goes on.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use super::{Inner, Server};

/// The user name on changes that [`Server::restore`] makes.
pub const RESTORER: &str = "etcdutl";

/// All stored objects at one moment.
#[derive(Clone)]
pub struct Snapshot(Server);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot at version {}", self.0.version())
    }
}

impl Snapshot {
    /// A server that answers reads from this state, like an API server of the same cluster that was paused then. It must not be
    /// written to.
    pub fn paused(&self) -> Server {
        self.0.clone()
    }
}

impl Server {
    /// Keeps the present state. Cheap: objects are shared until they are changed.
    pub fn snapshot(&self) -> Snapshot {
        let options = self.options().clone();
        let state = self.state().fork(&options);
        Snapshot(Self(Arc::new(Inner {
            state: Mutex::new(state),
            bells: Mutex::default(),
            asked: OnceLock::new(),
            options,
        })))
    }

    /// Restores the state of a snapshot, versions included, like a backup of the storage. Tokens and definitions stay as they
    /// are. Open watches learn nothing: the caller must end them, as the restart of a real server does.
    pub fn restore(&self, snapshot: &Snapshot) {
        {
            let then = snapshot.0.state();
            let mut state = self.state();
            state.store.restore(&then.store, RESTORER);
            state.collected = None;
        }
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jiff::Timestamp;
    use serde_json::json;

    use super::RESTORER;
    use crate::store::Key;
    use crate::{Clock, Options, Server};

    fn key(name: &str) -> Key {
        Key {
            resource: "configmaps".into(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn put(server: &Server, name: &str, value: i32) {
        server.state().store.put(key(name), json!({"n": value}), "me");
    }

    /// Spec: safety F15.
    #[test]
    fn a_restored_server_has_what_it_had_and_tells_what_changed() {
        let server = Server::new(Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), 1));
        put(&server, "kept", 1);
        put(&server, "changed", 1);
        let snapshot = server.snapshot();
        let version = server.version();
        put(&server, "changed", 2);
        put(&server, "created", 2);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = told.clone();
        server.observe(move |change| {
            let (name, gone) = (change.name.to_string(), change.new.is_none());
            tells.lock().unwrap().push((name, gone, change.user.to_string()));
        });
        server.restore(&snapshot);
        assert_eq!(server.version(), version);
        assert_eq!(server.state().store.get(&key("changed")).unwrap()["n"], 1);
        assert!(server.state().store.get(&key("created")).is_none());
        let by = || RESTORER.to_owned();
        let expected = [
            ("changed".to_owned(), false, by()),
            ("created".to_owned(), true, by()),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
    }

    /// Spec: safety F13.
    #[test]
    fn a_paused_server_does_not_see_what_comes_later() {
        let server = Server::new(Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), 1));
        let paused = server.snapshot().paused();
        put(&server, "created", 1);
        assert!(paused.state().store.get(&key("created")).is_none());
        assert!(paused.version() < server.version());
    }
}
