//! Events and bookmarks of an open watch.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Filter, is_as_stored};
use crate::failure::Failure;
use crate::json;
use crate::kinds::Kind;
use crate::request::Form;
use crate::server::Server;
use crate::store::{Did, Past};
use crate::stored::Stored;
use crate::table;

/// Events that are written before the stream yields to other tasks.
pub(super) const BATCH_MAX: usize = 500;
/// The time between two bookmarks of a watch that asked for them.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How long before its end a watch gets its last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The time of a watch's first bookmark, which always comes before the watch ends.
pub(super) fn first_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    (now + BOOKMARK_EVERY).min(last.max(now))
}

pub(super) struct Watcher {
    pub(super) server: Server,
    pub(super) kind: Arc<Kind>,
    pub(super) namespace: String,
    pub(super) filter: Filter,
    pub(super) form: Form,
    pub(super) include: String,
    /// All changes up to this version were sent.
    pub(super) version: u64,
    pub(super) bell: Arc<Notify>,
    pub(super) bookmarks: bool,
    pub(super) next_bookmark: Instant,
    pub(super) owes_bookmark: bool,
    pub(super) ends: Instant,
    /// The events to send first: the present objects, then the bookmark that ends them if the client asked for it.
    pub(super) first: Option<Vec<(&'static str, Arc<Stored>)>>,
    /// Whether the table's columns were sent.
    pub(super) headed: bool,
}

impl Watcher {
    /// Begins with the present state.
    pub(super) fn start(&mut self, marks_end: bool, least: u64) -> Result<(), Failure> {
        let state = self.server.state();
        let now = state.store.version();
        if least > now {
            return Err(Failure::too_large_version(least, now));
        }
        let mut events: Vec<(&'static str, Arc<Stored>)> = state
            .store
            .list(&self.kind.resource, &self.namespace)
            .filter(|(_, object)| self.filter.sees(object))
            .map(|(_, object)| ("ADDED", Arc::clone(object)))
            .collect();
        drop(state);
        self.version = now;
        if marks_end {
            let mut bookmark = self.bookmark();
            json::set(
                &mut bookmark,
                &["metadata", "annotations", "k8s.io/initial-events-end"],
                "true",
            );
            events.push(("BOOKMARK", Stored::of(bookmark)));
        }
        self.first = Some(events);
        Ok(())
    }

    /// Whether the changes since the version are still kept.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let state = self.server.state();
        let now = state.store.version();
        if self.version > now {
            return Err(Failure::too_large_version(self.version, now));
        }
        if self.version < state.store.compacted() {
            let oldest = state.store.compacted();
            drop(state);
            let message = format!("too old resource version: {} ({oldest})", self.version);
            self.first = Some(vec![("ERROR", Stored::of(Failure::expired(message).status()))]);
        }
        Ok(())
    }

    fn bookmark(&self) -> Value {
        let mut object = json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind,
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null},
        });
        if self.kind.is_custom() {
            json::remove(&mut object, &["metadata", "creationTimestamp"]);
        } else {
            // Wire: a bookmark is an empty object of the kind, with the zeros that Go writes.
            object = crate::decode::builtin(object, &self.kind.node, &self.kind.kind).0;
            json::remove(&mut object, &["metadata", "creationTimestamp"]);
        }
        object
    }

    /// The next lines, and whether there may be more.
    pub(super) async fn next(&mut self) -> Option<(Vec<u8>, bool)> {
        let bell = Arc::clone(&self.bell);
        loop {
            // Why before reading: a change from here on must wake this watch.
            let rung = bell.notified();
            if let Some(first) = self.first.take() {
                let failed = first.iter().any(|(kind, _)| *kind == "ERROR");
                if !first.is_empty() {
                    return Some((self.lines(first).await, !failed));
                }
            }
            let (changes, seen) = {
                let store = &self.server.state().store;
                let changes =
                    store.changes_after(&self.kind.resource, &self.namespace, self.version, BATCH_MAX);
                (changes, store.version())
            };
            let Ok(changes) = changes else {
                let message = format!("too old resource version: {}", self.version);
                let status = Failure::expired(message).status();
                return Some((self.lines(vec![("ERROR", Stored::of(status))]).await, false));
            };
            let full = changes.len() == BATCH_MAX;
            let last = changes.last().map(|change| change.version);
            let events: Vec<_> = changes.iter().filter_map(|change| self.event(change)).collect();
            self.version = match last {
                Some(last) if full => last,
                Some(last) => last.max(seen),
                None => self.version.max(seen),
            };
            if !events.is_empty() {
                return Some((self.lines(events).await, true));
            }
            if full {
                continue;
            }
            if std::mem::take(&mut self.owes_bookmark) {
                let bookmark = Stored::of(self.bookmark());
                return Some((self.lines(vec![("BOOKMARK", bookmark)]).await, true));
            }
            tokio::select! {
                biased;
                () = rung => {}
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    let now = Instant::now();
                    let last = self.ends.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now);
                    self.next_bookmark = last.unwrap_or(self.ends).min(now + BOOKMARK_EVERY);
                    self.owes_bookmark = true;
                }
            }
        }
    }

    fn event(&self, change: &Past) -> Option<(&'static str, Arc<Stored>)> {
        let before = change
            .previous
            .as_ref()
            .is_some_and(|previous| self.filter.sees(previous));
        let after = change.did != Did::Delete && self.filter.sees(&change.object);
        match (before, after) {
            (false, true) => Some(("ADDED", Arc::clone(&change.object))),
            (true, true) => Some(("MODIFIED", Arc::clone(&change.object))),
            (true, false) => {
                let mut last = Value::clone(change.previous.as_ref()?);
                json::set(
                    &mut last,
                    &["metadata", "resourceVersion"],
                    change.version.to_string(),
                );
                Some(("DELETED", Stored::of(last)))
            }
            (false, false) => None,
        }
    }

    async fn lines(&mut self, events: Vec<(&'static str, Arc<Stored>)>) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, object) in events {
            let ready = kind == "ERROR" || kind == "BOOKMARK" || is_as_stored(&self.kind, &object);
            // Why first: otherwise each of many watches would copy the object.
            if ready && self.form == Form::Object {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                out.extend_from_slice(&object.text());
                out.extend_from_slice(b"}\n");
                continue;
            }
            let object = if kind == "ERROR" {
                Value::clone(&object)
            } else {
                let presented = if kind == "BOOKMARK" {
                    Ok(vec![Value::clone(&object)])
                } else {
                    self.server.present(&self.kind, vec![object]).await
                };
                match presented {
                    Ok(objects) => self.form(objects.into_iter().next().unwrap_or_default()),
                    Err(failure) => failure.status(),
                }
            };
            out.extend(json::bytes(&json!({"type": kind, "object": object})));
            out.push(b'\n');
        }
        out
    }

    fn form(&mut self, object: Value) -> Value {
        match self.form {
            Form::Object => object,
            Form::Partial => table::partial(&object),
            Form::Table => {
                let head = if self.headed {
                    table::Head::No
                } else {
                    table::Head::Yes
                };
                self.headed = true;
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table::render(
                    &self.kind,
                    &[object],
                    &meta,
                    &self.include,
                    self.server.now(),
                    head,
                )
            }
        }
    }
}
