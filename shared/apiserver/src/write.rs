//! Create, update and patch.

mod apply;
mod checks;

use std::ops::Deref;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use checks::{report, reset_fields, same, settle_namespace, too_big};

use crate::admission::Operation;
use crate::builtin::{self, Part};
use crate::decode;
use crate::failure::{Cause, Failure};
use crate::kinds::{Kind, Scope};
use crate::managed::{self, Set};
use crate::patch;
use crate::read::key_of;
use crate::request::Call;
use crate::server::{Answer, Server, State};
use crate::store::Key;
use crate::stored::Stored;
use crate::{clock, custom, json};

/// Attempts of a write without a `resourceVersion` that meets conflicts.
const ATTEMPTS_MAX: usize = 5;

/// The result of a write's change.
enum Step {
    /// The next state of the stored object.
    Next(Value),
    /// The object does not exist and is to be created.
    Create(Value),
}

impl Server {
    /// Decodes an object that a client sent: pruned, typed, with defaults.
    pub(crate) fn decode(
        call: &Call,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Failure> {
        let kind = &call.kind;
        if !object.is_object() {
            return Err(Failure::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct",
                if object.is_array() { "array" } else { "string" }
            )));
        }
        let (version, name) = (kind.api_version(), kind.kind.as_str());
        let (given_version, given_name) = (
            json::text(&object, &["apiVersion"]).to_owned(),
            json::text(&object, &["kind"]).to_owned(),
        );
        if kind.is_custom() && (given_version.is_empty() || given_name.is_empty()) {
            let what = if given_name.is_empty() {
                "Kind"
            } else {
                "apiVersion"
            };
            return Err(Failure::bad_request(format!(
                "Object '{what}' is missing in '{object}'"
            )));
        }
        if (!given_version.is_empty() && given_version != version)
            || (!given_name.is_empty() && given_name != name)
        {
            let shown = if given_name.is_empty() { name } else { &given_name };
            if kind.is_custom() && given_version == version {
                let own = json::text(&object, &["metadata", "name"]);
                let about = crate::failure::About {
                    group: &kind.group,
                    kind: shown,
                    name: own,
                };
                let cause = Cause::invalid("kind", &shown.into(), &format!("must be {name}"));
                return Err(Failure::invalid(about, &[cause]));
            }
            let shown_version = given_version.rsplit('/').next().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "{shown} in version {shown_version:?} cannot be handled as a {name}: converting ({shown_version}.{shown}) to ({name}): unknown conversion"
            )));
        }
        let forgets = object["metadata"]["managedFields"]
            .as_array()
            .is_some_and(|list| list.is_empty() || *list == [json!({})]);
        let (mut object, findings) = if kind.is_custom() {
            json::set(&mut object, &["apiVersion"], version.clone());
            json::set(&mut object, &["kind"], name);
            decode::custom(object, &kind.node, name)
        } else {
            decode::builtin(object, &kind.node, name)
        };
        report(call, &findings, warnings)?;
        if kind.is_custom() {
            custom::default(&mut object, &kind.node);
            custom::drop_nulls(&mut object, &kind.node);
        } else {
            json::set(&mut object, &["apiVersion"], version);
            json::set(&mut object, &["kind"], name);
            Self::default(kind, &mut object);
        }
        if forgets {
            json::set(&mut object, &["metadata", "managedFields"], json!([]));
        }
        // Wire: a real server warns about a patch only after mutating admission.
        let when = if call.method == http::Method::PATCH {
            " after mutating admission happens"
        } else {
            ""
        };
        warnings.extend(crate::names::dedup_owners(&mut object, when));
        Ok(object)
    }

    fn default(kind: &Kind, object: &mut Value) {
        if kind.group == "events.k8s.io" {
            builtin::event_to_core(object);
        }
        builtin::default(kind, object);
    }

    pub(crate) async fn create(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        let form = call.form()?;
        if ![
            "application/json",
            "application/yaml",
            crate::request::PROTOBUF,
            "",
        ]
        .contains(&call.content_type())
        {
            return Err(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
        let object = Self::decode(call, call.parse_body()?, warnings)?;
        let stored = self.create_object(call, object, warnings).await?;
        self.answer(call, StatusCode::CREATED, form, stored).await
    }

    async fn create_object(
        &self,
        call: &Call,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Arc<Stored>, Failure> {
        let kind = &call.kind;
        settle_namespace(call, &mut object)?;
        if !json::text(&object, &["metadata", "resourceVersion"]).is_empty() {
            return Err(Failure::internal_plain(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let now = clock::seconds(self.now());
        for unset in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            json::remove(&mut object, &["metadata", unset]);
        }
        {
            let mut state = self.state();
            let generate = json::text(&object, &["metadata", "generateName"]).to_owned();
            if json::text(&object, &["metadata", "name"]).is_empty() && !generate.is_empty() {
                let name = format!("{}{}", &generate[..generate.len().min(58)], state.suffix());
                json::set(&mut object, &["metadata", "name"], name);
            }
            if kind.is("", "limitranges") && json::text(&object, &["metadata", "name"]).is_empty() {
                let name = state.uid();
                json::set(&mut object, &["metadata", "name"], name);
            }
            let uid = state.uid();
            json::set(&mut object, &["metadata", "uid"], uid);
        }
        json::set(&mut object, &["metadata", "creationTimestamp"], now.clone());
        let name = json::text(&object, &["metadata", "name"]).to_owned();
        self.namespace_allows(call, &name)?;
        let reset = reset_fields(kind, Part::Main);
        let manager = call.manager();
        let api_version = kind.api_version();
        let change = change(call, &manager, &api_version, &now, reset);
        // Why not after an apply: the apply has recorded its ownership already.
        if call.content_type() != "application/apply-patch+yaml" {
            managed::update(&Value::Null, &mut object, &change);
        }
        object = self
            .admit_mutating(call, Operation::Create, object, None, warnings)
            .await?;
        self.prepare_create(call, &mut object)?;
        let causes = Self::validate_create(call, &object);
        if !causes.is_empty() {
            return Err(Failure::invalid(call.about_kind(&name), &causes));
        }
        warnings.extend(if kind.is_custom() {
            crate::names::finalizer_warnings(&object, None)
        } else {
            builtin::warnings(kind, &object)
        });
        self.admit_validating(call, Operation::Create, Some(&object), None, warnings)
            .await?;
        let object = self.to_storage(kind, object).await?;
        too_big(&object)?;
        let mut state = self.state();
        let key = key_of(call, &name);
        if state.store.get(&key).is_some() {
            return Err(Failure::already_exists(call.about(&name)));
        }
        if call.query.is_dry_run() {
            return Ok(Stored::of(object));
        }
        Ok(self.commit(&mut state, key, object, &call.user.name))
    }

    fn prepare_create(&self, call: &Call, object: &mut Value) -> Result<(), Failure> {
        let state = self.state();
        let find = |resource: &str, namespace: &str, name: &str| {
            state
                .find(resource, namespace, name)
                .map(|found| Value::clone(found))
        };
        let list = |resource: &str| {
            let resource = resource.into();
            state
                .store
                .list(&resource, "")
                .map(|(_, object)| Value::clone(object))
                .collect()
        };
        let context = builtin::Context {
            now: self.now(),
            find: &find,
            list: &list,
        };
        let name = json::text(object, &["metadata", "name"]).to_owned();
        builtin::prepare_create(&call.kind, object, &context)
            .map_err(|why| Failure::forbidden(call.about(&name), &why))
    }

    async fn to_storage(&self, kind: &Kind, mut object: Value) -> Result<Value, Failure> {
        if kind.is_custom() && kind.version != kind.storage_version {
            let to = kind.storage_api_version();
            if let crate::kinds::Conversion::Webhook(webhook) = &kind.conversion {
                let converted = self.convert(webhook, vec![object], &to).await?;
                object = converted.into_iter().next().unwrap_or_default();
            } else {
                json::set(&mut object, &["apiVersion"], to);
            }
            let state = self.state();
            let stored = state
                .registry
                .find(&kind.group, &kind.storage_version, &kind.plural);
            if let Some(stored) = stored {
                object = decode::custom(object, &stored.node, &stored.kind).0;
                custom::default(&mut object, &stored.node);
            }
        }
        Ok(object)
    }

    /// Checks that the namespace exists and is not being deleted.
    fn namespace_allows(&self, call: &Call, name: &str) -> Result<(), Failure> {
        if call.kind.scope == Scope::Cluster {
            return Ok(());
        }
        let namespace = call.path.namespace.as_str();
        let state = self.state();
        let Some(found) = state.find("namespaces", "", namespace) else {
            return Err(Failure::not_found(crate::failure::About {
                group: "",
                kind: "namespaces",
                name: namespace,
            }));
        };
        if found["metadata"]["deletionTimestamp"].is_string() {
            return Err(Failure::terminating(call.about(name), namespace));
        }
        Ok(())
    }

    pub(crate) async fn update(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        call.form()?;
        let known = [
            "application/json",
            "application/yaml",
            crate::request::PROTOBUF,
            "",
        ];
        if !known.contains(&call.content_type()) {
            return Err(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
        let mut object = Self::decode(call, call.parse_body()?, warnings)?;
        settle_namespace(call, &mut object)?;
        let name = json::text(&object, &["metadata", "name"]);
        if name != call.path.name {
            return Err(Failure::bad_request(if name.is_empty() {
                "name must be provided".to_owned()
            } else {
                format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    call.path.name
                )
            }));
        }
        let make = |old: Option<&Value>| match old {
            Some(_) => Ok(Step::Next(object.clone())),
            None if builtin::may_create_on_update(&call.kind) => Ok(Step::Create(object.clone())),
            None => Err(Failure::not_found(call.about(&call.path.name))),
        };
        self.write(call, &make, Way::Put, warnings).await
    }

    pub(crate) async fn patch(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        call.form()?;
        let accepted: &[&str] = if call.kind.is_custom() {
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]
        } else {
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]
        };
        let how = patch::Kind::of(call.content_type())
            .filter(|_| accepted.contains(&call.content_type()))
            .ok_or_else(|| {
                if !call.kind.is_custom() {
                    return Failure::unknown_media_type();
                }
                Failure::unsupported_media_type(&format!(
                    "the body of the request was in an unknown format - accepted media types include: {}, application/apply-patch+cbor",
                    accepted.join(", ")
                ))
            })?;
        let force = call.query.flag("force");
        let options = crate::failure::About {
            group: "meta.k8s.io",
            kind: "PatchOptions",
            name: "",
        };
        if how == patch::Kind::Apply && call.query.get("fieldManager").is_empty() {
            let says = "is required for apply patch";
            return Err(Failure::invalid(
                options,
                &[Cause::required("fieldManager", says)],
            ));
        }
        if how != patch::Kind::Apply && call.query.has("force") {
            let says = "may not be specified for non-apply patch";
            return Err(Failure::invalid(options, &[Cause::forbidden("force", says)]));
        }
        let body = if how == patch::Kind::Apply {
            crate::request::parse(&call.body, "application/yaml")?
        } else {
            serde_json::from_slice(&call.body)
                .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?
        };
        if how == patch::Kind::Apply {
            return self.apply(call, body, force, warnings).await;
        }
        if how != patch::Kind::Json && !body.is_object() {
            return Err(Failure::bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
            ));
        }
        let found = std::sync::Mutex::new(Vec::new());
        let make = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Failure::not_found(call.about(&call.path.name)))?;
            let patched = || patched(call, old, how, &body);
            let mut own = Vec::new();
            let decoded = Self::decode(call, patched()?, &mut own).map_err(|failure| {
                // Wire: a real server answers like this if the patched object cannot be decoded.
                let unread = failure.message().contains("cannot be handled as") && !call.kind.is_custom();
                if unread && how != patch::Kind::Strategic {
                    let about = crate::failure::About {
                        group: "",
                        kind: "",
                        name: "",
                    };
                    let patched = patched().unwrap_or_default();
                    let cause = Cause::invalid("patch", &patched.to_string().into(), failure.message());
                    return Failure::invalid(about, &[cause]);
                }
                failure
            })?;
            let name = json::text(&decoded, &["metadata", "name"]);
            if name != call.path.name {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    call.path.name
                )));
            }
            *found.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = own;
            Ok(Step::Next(decoded))
        };
        let answer = self.write(call, &make, Way::Patch, warnings).await;
        warnings.extend(found.into_inner().unwrap_or_default());
        answer
    }

    /// The loop of every change of an object: read, change, admit, check, and write if the object is unchanged.
    async fn write(
        &self,
        call: &Call,
        make: &(dyn Fn(Option<&Value>) -> Result<Step, Failure> + Sync),
        way: Way,
        warnings: &mut Vec<String>,
    ) -> Result<Answer, Failure> {
        let kind = &call.kind;
        let form = call.form()?;
        let key = key_of(call, &call.path.name);
        for attempt in 0..ATTEMPTS_MAX {
            let found = self.state().store.get(&key).cloned();
            let old = match &found {
                Some(found) => Some(self.present_stored(kind, found).await?),
                None => None,
            };
            let mut object = match make(old.as_deref().map(Deref::deref))? {
                Step::Create(object) => {
                    let stored = self.create_object(call, object, warnings).await?;
                    return self.answer(call, StatusCode::CREATED, form, stored).await;
                }
                Step::Next(object) => object,
            };
            let (Some(found), Some(old)) = (found, old) else {
                return Err(Failure::not_found(call.about(&call.path.name)));
            };
            let old: &Value = &old;
            let named = Self::check_preconditions(call, &object, old, way)?;
            self.account(call, &mut object, old, way);
            let operation = Operation::Update;
            object = self
                .admit_mutating(call, operation, object, Some(old), warnings)
                .await?;
            let uid = object["metadata"]["uid"].clone();
            for field in [
                "uid",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "selfLink",
                "generation",
            ] {
                json::copy(&mut object, old, &["metadata", field]);
            }
            let part = part_of(call);
            builtin::prepare_update(kind, part, &mut object, old);
            let mut causes = Self::validate_update(call, part, &object, old);
            if !uid.is_null() && uid != old["metadata"]["uid"] {
                causes.push(Cause::immutable("metadata.uid", &uid));
            }
            if !causes.is_empty() {
                return Err(Failure::invalid(call.about_kind(&call.path.name), &causes));
            }
            if kind.is_custom() && part == Part::Main {
                warnings.extend(crate::names::finalizer_warnings(&object, Some(old)));
            }
            self.admit_validating(call, operation, Some(&object), Some(old), warnings)
                .await?;
            let unchanged = same(&object, old);
            let stored = self.to_storage(kind, object).await?;
            too_big(&stored)?;
            let mode = match (unchanged, call.query.is_dry_run()) {
                (true, _) => Mode::Unchanged,
                (false, true) => Mode::DryRun,
                (false, false) => Mode::Write,
            };
            let Some(result) = self.replace(call, &found, stored, mode) else {
                if named || attempt + 1 == ATTEMPTS_MAX {
                    return Err(Failure::modified(call.about(&call.path.name)));
                }
                continue;
            };
            return self.answer(call, StatusCode::OK, form, result).await;
        }
        Err(Failure::modified(call.about(&call.path.name)))
    }

    /// Writes the object unless the stored one has changed since it was read (`found`). `None` if it has.
    fn replace(&self, call: &Call, found: &Arc<Stored>, object: Value, mode: Mode) -> Option<Arc<Stored>> {
        let key = &key_of(call, &call.path.name);
        let mut state = self.state();
        let current = state.store.get(key);
        if current.is_none_or(|current| !Arc::ptr_eq(current, found)) {
            return None;
        }
        Some(match mode {
            Mode::Unchanged => Arc::clone(found),
            Mode::DryRun => Stored::of(object),
            Mode::Write => self.put_or_finish(&mut state, key.clone(), object, &call.user.name),
        })
    }

    /// The stored object in the version of the request.
    pub(crate) async fn present_stored(
        &self,
        kind: &Kind,
        found: &Arc<Stored>,
    ) -> Result<Arc<Stored>, Failure> {
        if !kind.is_custom() || crate::read::is_as_stored(kind, found) {
            return Ok(Arc::clone(found));
        }
        let shown = self.present(kind, vec![Arc::clone(found)]).await?;
        let mut shown = shown.into_iter().next().unwrap_or_default();
        json::object(&mut shown);
        Ok(Stored::of(shown))
    }

    /// Writes an object, or deletes it if its deletion waited only for the last finalizer.
    pub(crate) fn put_or_finish(
        &self,
        state: &mut State,
        key: Key,
        object: Value,
        user: &str,
    ) -> Arc<Stored> {
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        let free = json::items(&object, &["metadata", "finalizers"]).is_empty();
        let graceless = object["metadata"]["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(0)
            == 0;
        let empty =
            &*key.resource != "namespaces" || json::items(&object, &["spec", "finalizers"]).is_empty();
        if deleting && free && graceless && empty {
            Self::erase(state, &key, user);
            // Why: the answer shows what the client wrote.
            return Stored::of(object);
        }
        self.commit(state, key, object, user)
    }

    /// Whether the request requires a version. *Errors*: it is not the stored one, or a required version is missing.
    fn check_preconditions(call: &Call, object: &Value, old: &Value, way: Way) -> Result<bool, Failure> {
        let about = call.about(&call.path.name);
        let given = json::text(object, &["metadata", "resourceVersion"]);
        let current = json::text(old, &["metadata", "resourceVersion"]);
        let uid = json::text(object, &["metadata", "uid"]);
        let own = json::text(old, &["metadata", "uid"]);
        if !uid.is_empty() && uid != own && way == Way::Put {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
            return Err(Failure::conflict(about, &why));
        }
        if given.is_empty() || given == "0" {
            if way == Way::Put && !builtin::may_update_blindly(&call.kind) {
                let cause = Cause::invalid(
                    "metadata.resourceVersion",
                    &0.into(),
                    "must be specified for an update",
                );
                return Err(Failure::invalid(call.about(&call.path.name), &[cause]));
            }
            return Ok(false);
        }
        if given.parse::<u64>().is_err() {
            let message = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
            return Err(Failure::internal_plain(&message));
        }
        if given != current {
            return Err(Failure::modified(about));
        }
        // Why only a PUT: a patched object has the stored version even if the client named none.
        Ok(way == Way::Put)
    }

    fn account(&self, call: &Call, object: &mut Value, old: &Value, way: Way) {
        if way == Way::Apply {
            return;
        }
        let now = clock::seconds(self.now());
        let reset = reset_fields(&call.kind, part_of(call));
        let manager = call.manager();
        let api_version = call.kind.api_version();
        managed::update(old, object, &change(call, &manager, &api_version, &now, reset));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing changed, so nothing is written.
    Unchanged,
    DryRun,
    Write,
}

/// The kind of request that makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    Patch,
    Apply,
}

fn patched(call: &Call, old: &Value, how: patch::Kind, body: &Value) -> Result<Value, Failure> {
    let mut base = old.clone();
    if call.kind.group == "events.k8s.io" {
        builtin::event_from_core(&mut base);
    }
    match how {
        patch::Kind::Json => patch::json(base, body),
        patch::Kind::Strategic => patch::strategic(base, body, &call.kind.node),
        patch::Kind::Merge | patch::Kind::Apply => Ok(patch::merge(base, body)),
    }
}

pub(crate) fn part_of(call: &Call) -> Part {
    if call.path.subresource == "status" {
        Part::Status
    } else {
        Part::Main
    }
}

fn change<'a>(
    call: &'a Call,
    manager: &'a str,
    api_version: &'a str,
    now: &'a str,
    reset: &'a Set,
) -> managed::Change<'a> {
    managed::Change {
        manager,
        api_version,
        subresource: &call.path.subresource,
        now,
        reset,
        node: &call.kind.node,
    }
}
