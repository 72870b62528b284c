//! The request of server-side apply.

use serde_json::{Value, json};

use super::checks::{keep_said, report_apply, reset_fields, settle_namespace, untyped};
use super::{Step, Way, change, part_of};
use crate::builtin::Part;
use crate::failure::Failure;
use crate::read::key_of;
use crate::request::Call;
use crate::server::{Answer, Server};
use crate::{clock, decode, json, managed};

impl Server {
    pub(super) async fn apply(
        &self,
        call: &Call,
        body: Value,
        force: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Answer, Failure> {
        let kind = &call.kind;
        let mut config = body;
        if !config.is_object() {
            config = json!({});
        }
        if json::at(&config, &["metadata", "managedFields"]).is_some() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        for (field, wanted) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
            let given = json::text(&config, &[field]);
            if given.is_empty() || given != wanted {
                let message =
                    format!("incorrect {field} in apply configuration: {given:?}, must be {wanted:?}");
                return Err(Failure::bad_request(message));
            }
        }
        let name = json::text(&config, &["metadata", "name"]).to_owned();
        let exists = self.state().store.get(&key_of(call, &call.path.name)).is_some();
        if name.is_empty() && exists {
            json::set(&mut config, &["metadata", "name"], call.path.name.as_str());
        } else if name.is_empty() {
            return Err(Failure::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.path.name
            )));
        }
        let name = json::text(&config, &["metadata", "name"]).to_owned();
        if name != call.path.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.path.name
            )));
        }
        settle_namespace(call, &mut config)?;
        // Why without zeros and defaults: the applier owns only the fields that it sent.
        let mut findings = if kind.is_custom() {
            let (pruned, findings) = decode::custom(config.clone(), &kind.node, &kind.kind);
            config = pruned;
            findings
        } else {
            let (typed, findings) = decode::builtin(config.clone(), &kind.node, &kind.kind);
            keep_said(&mut config, &typed);
            findings
        };
        if let Some(wrong) = findings.wrong.take() {
            return Err(untyped(call, &wrong));
        }
        report_apply(call, &findings)?;
        if kind.group == "events.k8s.io" {
            return Err(Failure::not_implemented("server-side apply of events.k8s.io"));
        }
        let part = part_of(call);
        let reset = reset_fields(kind, part);
        let manager = call.manager();
        let api_version = kind.api_version();
        let force = if force {
            managed::Force::Yes
        } else {
            managed::Force::No
        };
        let make = |old: Option<&Value>| {
            if old.is_none() {
                if part == Part::Status {
                    return Err(Failure::not_found(call.about(&call.path.name)));
                }
                let uid = json::text(&config, &["metadata", "uid"]);
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Failure::conflict(call.about(&call.path.name), &why));
                }
            }
            let now = clock::seconds(self.now());
            let change = change(call, &manager, &api_version, &now, reset);
            let live = old.unwrap_or(&Value::Null);
            let applied = managed::apply(live, &config, &change, force)?;
            let fields = json::at(&applied.object, &["metadata", "managedFields"]).cloned();
            let mut object = Self::decode(call, applied.object, &mut Vec::new())?;
            if let Some(fields) = fields {
                json::set(&mut object, &["metadata", "managedFields"], fields);
            }
            Ok(if old.is_some() {
                Step::Next(object)
            } else {
                Step::Create(object)
            })
        };
        self.write(call, &make, Way::Apply, warnings).await
    }
}
