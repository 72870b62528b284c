//! Get, list and watch.

mod goes_on;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use goes_on::Continue;

use crate::failure::{About, Cause, Failure};
use crate::json;
use crate::kinds::{Conversion, Kind};
use crate::request::{Call, Form};
use crate::selector::{Fields, Labels};
use crate::server::{Answer, Server};
use crate::store::{Did, Gone, Key, Past};
use crate::{builtin, table};

/// Events that are written before the stream breathes.
const BATCH_MAX: usize = 500;
/// How often a watch is told how far it is, if it wants to know.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How long before its end a watch is told how far it is.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How long a watch lives unless it says otherwise.
const WATCH_SECONDS: u64 = 1800;
const SPLIT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// What may be seen of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    labels: Labels,
    fields: Fields,
    api_version: String,
}

impl Filter {
    pub(crate) fn of(call: &Call) -> Result<Self, Failure> {
        let unreadable = Failure::bad_request;
        let labels = Labels::parse(call.query.get("labelSelector")).map_err(unreadable)?;
        let fields = Fields::parse(call.query.get("fieldSelector")).map_err(unreadable)?;
        if let Some(unknown) = fields.unknown(&call.kind.selectable) {
            let message = if call.kind.is_custom() {
                format!("field label not supported: {unknown}")
            } else {
                match call.kind.plural.as_str() {
                    "configmaps" | "leases" | "roles" | "rolebindings" | "clusterroles" => {
                        format!(
                            "{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                        )
                    }
                    _ => format!("field label not supported: {unknown}"),
                }
            };
            return Err(Failure::bad_request(message));
        }
        Ok(Self {
            labels,
            fields,
            api_version: call.kind.api_version(),
        })
    }

    pub(crate) fn sees(&self, object: &Value) -> bool {
        if !self.labels.matches(object) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        if self.api_version.starts_with("events.k8s.io") {
            let mut event = object.clone();
            builtin::event_from_core(&mut event);
            return self.fields.matches(&event);
        }
        self.fields.matches(object)
    }

    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

fn invalid_options(causes: &[Cause]) -> Failure {
    let about = About {
        group: "meta.k8s.io",
        kind: "ListOptions",
        name: "",
    };
    Failure::invalid(about, causes)
}

/// How old a list may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Latest,
    NotOlderThan(u64),
    Exact(u64),
}

fn parse_version(call: &Call, text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_wrong| {
        let says = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        if call.query.flag("watch") {
            Failure::internal_plain(&says)
        } else {
            Failure::bad_request(format!("invalid resource version: {says}"))
        }
    })
}

fn version_of(call: &Call) -> Result<Version, Failure> {
    let (version, matching) = (
        call.query.get("resourceVersion"),
        call.query.get("resourceVersionMatch"),
    );
    let mut causes = Vec::new();
    let forbidden = |says: &str| Cause::forbidden("resourceVersionMatch", says);
    if call.query.has("sendInitialEvents") && !call.query.flag("watch") {
        let says = "sendInitialEvents is forbidden for list";
        causes.push(Cause::forbidden("sendInitialEvents", says));
    }
    if !matching.is_empty() {
        if call.query.flag("watch") && !call.query.has("sendInitialEvents") {
            causes.push(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if version.is_empty() && !(call.query.flag("watch") && call.query.flag("sendInitialEvents")) {
            causes.push(forbidden(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !call.query.get("continue").is_empty() {
            causes.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !["Exact", "NotOlderThan"].contains(&matching) {
            let allowed = ["Exact", "NotOlderThan", ""].map(str::to_owned);
            causes.push(Cause::not_supported(
                "resourceVersionMatch",
                &matching.into(),
                &allowed,
            ));
        }
        if matching == "Exact" && version == "0" {
            causes.push(forbidden(
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if !causes.is_empty() {
        return Err(invalid_options(&causes));
    }
    if version.is_empty() {
        return Ok(Version::Latest);
    }
    let number = parse_version(call, version)?;
    let limited = !call.query.get("limit").is_empty() && call.query.get("limit") != "0";
    Ok(match matching {
        "Exact" => Version::Exact(number),
        // Why exact with a limit: so real servers read the old way of asking.
        "" if limited && number > 0 => Version::Exact(number),
        _ => Version::NotOlderThan(number),
    })
}

impl Server {
    pub(crate) async fn get(&self, call: &Call) -> Result<Answer, Failure> {
        let form = call.form()?;
        let asked = call.query.get("resourceVersion");
        let (stored, version) = {
            let state = self.state();
            let key = key_of(call, &call.path.name);
            (state.store.get(&key).cloned(), state.store.version())
        };
        if !asked.is_empty() {
            let asked: u64 = asked.parse().map_err(|_wrong| {
                let about = About {
                    group: "meta.k8s.io",
                    kind: "GetOptions",
                    name: "",
                };
                let says = format!("strconv.ParseUint: parsing {asked:?}: invalid syntax");
                Failure::invalid(about, &[Cause::invalid("resourceVersion", &asked.into(), &says)])
            })?;
            if asked > version {
                return Err(Failure::too_large_version(asked, version));
            }
        }
        let stored = stored.ok_or_else(|| Failure::not_found(call.about(&call.path.name)))?;
        let objects = self.present(&call.kind, vec![stored]).await?;
        let object = objects.into_iter().next().unwrap_or_default();
        Ok(Answer::Json(StatusCode::OK, self.shape(call, form, object)))
    }

    /// One object in the form that was asked for.
    pub(crate) fn shape(&self, call: &Call, form: Form, object: Value) -> Value {
        match form {
            Form::Object => object,
            Form::Partial => partial(&object),
            Form::Table => {
                let version = object["metadata"]["resourceVersion"].clone();
                let list = json!({"resourceVersion": version});
                table::render(
                    &call.kind,
                    &[object],
                    &list,
                    call.query.get("includeObject"),
                    self.now(),
                    table::Head::Yes,
                )
            }
        }
    }

    pub(crate) async fn list(&self, call: &Call) -> Result<Answer, Failure> {
        let form = call.form()?;
        let filter = Filter::of(call)?;
        let version = version_of(call)?;
        let limit = match call.query.get("limit") {
            "" => 0,
            text => text.parse::<i64>().map_err(|_wrong| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?,
        };
        let limit = usize::try_from(limit).unwrap_or(0);
        let page = self.page_of(call, &filter, version, limit)?;
        let objects = self.present(&call.kind, page.objects).await?;
        let mut meta = json!({"resourceVersion": page.version.to_string()});
        if call.kind.is_custom() && form == Form::Object {
            meta["continue"] = "".into();
        }
        if let Some(after) = page.next {
            meta["continue"] = Continue::after(call, Some(page.version), &after).into();
            if filter.is_empty() && page.remaining > 0 {
                meta["remainingItemCount"] = page.remaining.into();
            }
        }
        let answer = match form {
            Form::Table => {
                let include = call.query.get("includeObject");
                table::render(&call.kind, &objects, &meta, include, self.now(), table::Head::Yes)
            }
            Form::Object => {
                let strip = |mut object: Value| {
                    if !call.kind.is_custom() {
                        json::remove(&mut object, &["apiVersion"]);
                        json::remove(&mut object, &["kind"]);
                    }
                    object
                };
                json!({
                    "apiVersion": call.kind.api_version(), "kind": call.kind.list_kind, "metadata": meta,
                    "items": objects.into_iter().map(strip).collect::<Vec<_>>(),
                })
            }
            Form::Partial => json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": meta,
                "items": objects.iter().map(partial).collect::<Vec<_>>(),
            }),
        };
        Ok(Answer::Json(StatusCode::OK, answer))
    }

    fn page_of(&self, call: &Call, filter: &Filter, version: Version, limit: usize) -> Result<Page, Failure> {
        let state = self.state();
        let now = state.store.version();
        let resource = &call.kind.resource;
        let namespace = call.path.namespace.as_str();
        let token = call.query.get("continue");
        let going_on = if token.is_empty() {
            None
        } else {
            if version != Version::Latest && version != Version::NotOlderThan(0) {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(message));
            }
            Some(Continue::parse(call, token).ok_or_else(|| {
                Failure::bad_request("continue key is not valid: illegal base64 data at input byte 0")
            })?)
        };
        let at = match (&going_on, version) {
            (Some(going_on), _) => going_on.version.unwrap_or(now),
            (None, Version::NotOlderThan(least)) if least > now => {
                return Err(Failure::too_large_version(least, now));
            }
            (None, Version::Latest | Version::NotOlderThan(_)) => now,
            (None, Version::Exact(exact)) => exact,
        };
        let past: BTreeMap<Key, Arc<Value>>;
        let all: Box<dyn Iterator<Item = (&Key, &Arc<Value>)>> = if at == now {
            Box::new(state.store.list(resource, namespace))
        } else {
            past = state
                .store
                .list_at(resource, namespace, at)
                .map_err(|gone| match gone {
                    Gone::Compacted => match &going_on {
                        Some(going_on) => Failure::expired_page(SPLIT, going_on.inconsistent(call)),
                        None => Failure::expired("The resourceVersion for the provided list is too old."),
                    },
                    Gone::Future => Failure::too_large_version(at, now),
                })?;
            Box::new(past.iter())
        };
        let mut rest = all
            .filter(|(key, _)| going_on.as_ref().is_none_or(|on| **key >= on.start))
            .filter(|(_, object)| filter.sees(object));
        let mut page = Page {
            objects: Vec::new(),
            version: at,
            next: None,
            remaining: 0,
        };
        let mut last = None;
        for (key, object) in rest.by_ref() {
            page.objects.push(Arc::clone(object));
            last = Some(key.clone());
            if limit > 0 && page.objects.len() == limit {
                break;
            }
        }
        page.remaining = rest.count();
        if page.remaining > 0 {
            page.next = last;
        }
        Ok(page)
    }

    /// Objects as a version of their kind shows them.
    pub(crate) async fn present(&self, kind: &Kind, stored: Vec<Arc<Value>>) -> Result<Vec<Value>, Failure> {
        let mut out: Vec<Value> = stored.iter().map(|object| Value::clone(object)).collect();
        if kind.is_custom() {
            let foreign = kind.storage_version != kind.version;
            if foreign && let Conversion::Webhook(webhook) = &kind.conversion {
                out = self.convert(webhook, out, &kind.api_version()).await?;
            }
            for object in &mut out {
                if is_as_stored(kind, object) {
                    continue;
                }
                json::set(object, &["apiVersion"], kind.api_version());
                // Why again: the schema may have changed since it was stored.
                let taken = std::mem::take(object);
                let (mut pruned, _) = crate::decode::custom(taken, &kind.node, &kind.kind);
                crate::custom::default(&mut pruned, &kind.node);
                *object = pruned;
            }
        } else if kind.group == "events.k8s.io" {
            out.iter_mut().for_each(builtin::event_from_core);
        }
        Ok(out)
    }

    pub(crate) fn watch(&self, call: &Call) -> Result<Answer, Failure> {
        let form = call.form()?;
        let filter = Filter::of(call)?;
        version_of(call)?;
        let initial = call.query.get("sendInitialEvents");
        if !initial.is_empty() && call.query.get("resourceVersionMatch") != "NotOlderThan" {
            let says = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(invalid_options(&[Cause::forbidden("resourceVersionMatch", says)]));
        }
        let asked = call.query.get("resourceVersion");
        let asked_version = if asked.is_empty() {
            0
        } else {
            parse_version(call, asked)?
        };
        let seconds = call.query.get("timeoutSeconds").parse().unwrap_or(0);
        let seconds = if seconds == 0 { WATCH_SECONDS } else { seconds };
        let now = Instant::now();
        let ends = now + Duration::from_secs(seconds);
        let mut watcher = Watcher {
            server: self.clone(),
            kind: Arc::clone(&call.kind),
            namespace: call.path.namespace.clone(),
            filter,
            form,
            include: call.query.get("includeObject").to_owned(),
            version: asked_version,
            bell: self.bell(&call.kind.resource),
            bookmarks: call.query.flag("allowWatchBookmarks"),
            next_bookmark: first_bookmark(now, ends),
            owes_bookmark: false,
            ends,
            first: None,
            headed: false,
        };
        let list = match initial {
            "true" => true,
            "false" => false,
            _ => asked_version == 0,
        };
        if initial == "false" && asked_version == 0 {
            watcher.version = self.version();
        }
        let marks_end = initial == "true" && watcher.bookmarks;
        if list || asked_version == 0 && initial != "false" {
            watcher.start(marks_end, asked_version)?;
        } else {
            watcher.check()?;
        }
        let frames = stream::unfold(Some(watcher), |watcher| async move {
            let mut watcher = watcher?;
            let (lines, more) = watcher.next().await?;
            let frame = Ok(Frame::data(Bytes::from(lines)));
            Some((frame, more.then_some(watcher)))
        });
        Ok(Answer::Stream(StreamBody::new(frames).boxed_unsync()))
    }
}

/// Whether a version of a kind shows an object just as it is stored.
fn is_as_stored(kind: &Kind, object: &Value) -> bool {
    if !kind.is_custom() {
        return kind.group != "events.k8s.io";
    }
    let version = json::text(object, &["metadata", "resourceVersion"]).parse();
    kind.storage_version == kind.version && version.is_ok_and(|version: u64| version > kind.since)
}

struct Page {
    objects: Vec<Arc<Value>>,
    version: u64,
    next: Option<Key>,
    remaining: usize,
}

/// When a watch is first told how far it is: in time before it ends.
fn first_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    (now + BOOKMARK_EVERY).min(last.max(now))
}

/// Where an object of a request lives.
pub(crate) fn key_of(call: &Call, name: &str) -> Key {
    Key {
        resource: Arc::clone(&call.kind.resource),
        namespace: call.path.namespace.clone(),
        name: name.to_owned(),
    }
}

pub(crate) fn partial(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

/// One open watch.
struct Watcher {
    server: Server,
    kind: Arc<Kind>,
    namespace: String,
    filter: Filter,
    form: Form,
    include: String,
    /// Everything up to here was told.
    version: u64,
    bell: Arc<Notify>,
    bookmarks: bool,
    next_bookmark: Instant,
    owes_bookmark: bool,
    ends: Instant,
    /// What is told first: events, then perhaps the bookmark that ends them.
    first: Option<Vec<(&'static str, Arc<Value>)>>,
    /// Whether a table's columns were told.
    headed: bool,
}

impl Watcher {
    /// Begins with the present state.
    fn start(&mut self, marks_end: bool, least: u64) -> Result<(), Failure> {
        let state = self.server.state();
        let now = state.store.version();
        if least > now {
            return Err(Failure::too_large_version(least, now));
        }
        let mut events: Vec<(&'static str, Arc<Value>)> = state
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
            events.push(("BOOKMARK", Arc::new(bookmark)));
        }
        self.first = Some(events);
        Ok(())
    }

    /// Whether the changes since the version are still there.
    fn check(&mut self) -> Result<(), Failure> {
        let state = self.server.state();
        let now = state.store.version();
        if self.version > now {
            return Err(Failure::too_large_version(self.version, now));
        }
        if self.version < state.store.compacted() {
            let oldest = state.store.compacted();
            drop(state);
            let message = format!("too old resource version: {} ({oldest})", self.version);
            self.first = Some(vec![("ERROR", Arc::new(Failure::expired(message).status()))]);
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
            // Why: an empty object of the kind carries the version, with the zeros that Go writes.
            object = crate::decode::builtin(object, &self.kind.node, &self.kind.kind).0;
            json::remove(&mut object, &["metadata", "creationTimestamp"]);
        }
        object
    }

    /// The next lines, and whether there may be more.
    async fn next(&mut self) -> Option<(String, bool)> {
        let bell = Arc::clone(&self.bell);
        loop {
            // Why before looking: what changes from here on must not be missed.
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
                return Some((self.lines(vec![("ERROR", Arc::new(status))]).await, false));
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
                let bookmark = Arc::new(self.bookmark());
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

    /// What a change looks like through the filter.
    fn event(&self, change: &Past) -> Option<(&'static str, Arc<Value>)> {
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
                Some(("DELETED", Arc::new(last)))
            }
            (false, false) => None,
        }
    }

    async fn lines(&mut self, events: Vec<(&'static str, Arc<Value>)>) -> String {
        let mut out = String::new();
        for (kind, object) in events {
            let ready = kind == "ERROR" || kind == "BOOKMARK" || is_as_stored(&self.kind, &object);
            // Why first: else each of many watches would copy the object.
            if ready && self.form == Form::Object {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{{\"type\":\"{kind}\",\"object\":{object}}}");
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
            out.push_str(&json!({"type": kind, "object": object}).to_string());
            out.push('\n');
        }
        out
    }

    fn form(&mut self, object: Value) -> Value {
        match self.form {
            Form::Object => object,
            Form::Partial => partial(&object),
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

#[cfg(test)]
mod tests;
