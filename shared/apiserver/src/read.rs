//! Get, list and watch.

mod goes_on;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;

use goes_on::Continue;
use watch::{Watcher, first_bookmark};

use crate::failure::{About, Cause, Failure};
use crate::json;
use crate::kinds::{Conversion, Kind};
use crate::list::List;
use crate::request::{Call, Form};
use crate::selector::{Fields, Labels};
use crate::server::{Answer, Server};
use crate::store::{Gone, Key};
use crate::stored::Stored;
use crate::{builtin, table};

/// How long a watch lives unless it says otherwise.
const WATCH_SECONDS: u64 = 1800;
const SPLIT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The selectors of a list or watch.
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
        // Wire: without `resourceVersionMatch`, a real server reads a version with a limit as `Exact`.
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
        self.answer(call, StatusCode::OK, form, stored).await
    }

    /// Answers with one object, as it is stored or as the request wants to see it.
    pub(crate) async fn answer(
        &self,
        call: &Call,
        code: StatusCode,
        form: Form,
        stored: Arc<Stored>,
    ) -> Result<Answer, Failure> {
        // Why first: this is the common case and needs no copy.
        if form == Form::Object && is_as_stored(&call.kind, &stored) {
            return Ok(Answer::Stored(code, stored));
        }
        let objects = self.present(&call.kind, vec![stored]).await?;
        let object = objects.into_iter().next().unwrap_or_default();
        Ok(Answer::Json(code, self.shape(call, form, object)))
    }

    pub(crate) fn shape(&self, call: &Call, form: Form, object: Value) -> Value {
        match form {
            Form::Object => object,
            Form::Partial => table::partial(&object),
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
        // Why first: this is the common case and needs no copies.
        if form == Form::Object && page.objects.iter().all(|object| is_as_stored(&call.kind, object)) {
            return Ok(Answer::List(List {
                kind: Arc::clone(&call.kind),
                meta,
                objects: page.objects,
            }));
        }
        let objects = self.present(&call.kind, page.objects).await?;
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
                "items": objects.iter().map(table::partial).collect::<Vec<_>>(),
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
        let past: BTreeMap<Key, Arc<Stored>>;
        let all: Box<dyn Iterator<Item = (&Key, &Arc<Stored>)>> = if at == now {
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
    pub(crate) async fn present(&self, kind: &Kind, stored: Vec<Arc<Stored>>) -> Result<Vec<Value>, Failure> {
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
                // Why again: the schema may have changed since the object was stored.
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
pub(crate) fn is_as_stored(kind: &Kind, object: &Value) -> bool {
    if !kind.is_custom() {
        return kind.group != "events.k8s.io";
    }
    let version = json::text(object, &["metadata", "resourceVersion"]).parse();
    kind.storage_version == kind.version && version.is_ok_and(|version: u64| version > kind.since)
}

struct Page {
    objects: Vec<Arc<Stored>>,
    version: u64,
    next: Option<Key>,
    remaining: usize,
}

/// Where an object of a request lives.
pub(crate) fn key_of(call: &Call, name: &str) -> Key {
    Key {
        resource: Arc::clone(&call.kind.resource),
        namespace: call.path.namespace.clone(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
