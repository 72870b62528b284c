//! Authorization by roles and bindings, and the reviews that ask about it.

mod impersonate;

use std::ops::ControlFlow;

use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::failure::{About, Failure};
use crate::request::{Path, User, parse};
use crate::server::{Answer, Authorization, Server, State};
use crate::{decode, json, schema};

const MASTERS: &str = "system:masters";
const RBAC: &str = "rbac.authorization.k8s.io";

/// An action to authorize.
#[derive(Debug, Clone, Default)]
struct Wish {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
    namespace: String,
    /// The path of a request that is for no resource. If it is set, the other fields are ignored.
    url: Option<String>,
}

fn has(rule: &Value, field: &str, wanted: &str) -> bool {
    json::texts(rule, &[field])
        .into_iter()
        .any(|word| word == "*" || word == wanted)
}

fn allows(rule: &Value, wish: &Wish) -> bool {
    if !has(rule, "verbs", &wish.verb) {
        return false;
    }
    if let Some(url) = &wish.url {
        return json::texts(rule, &["nonResourceURLs"])
            .into_iter()
            .any(|pattern| {
                pattern == url
                    || pattern
                        .strip_suffix('*')
                        .is_some_and(|prefix| url.starts_with(prefix))
            });
    }
    let combined = if wish.subresource.is_empty() {
        wish.resource.clone()
    } else {
        format!("{}/{}", wish.resource, wish.subresource)
    };
    let resource = json::texts(rule, &["resources"]).into_iter().any(|word| {
        word == "*"
            || word == combined
            || (!wish.subresource.is_empty() && word == format!("*/{}", wish.subresource))
    });
    let names = json::texts(rule, &["resourceNames"]);
    has(rule, "apiGroups", &wish.group)
        && resource
        && (names.is_empty() || names.contains(&wish.name.as_str()))
}

fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = json::text(subject, &["name"]);
    match json::text(subject, &["kind"]) {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let own = json::text(subject, &["namespace"]);
            let namespace = if own.is_empty() { namespace } else { own };
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

impl State {
    fn rules_of(
        &self,
        role: &Value,
        namespace: &str,
        visit: &mut dyn FnMut(&Value) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let name = json::text(role, &["name"]);
        let found = if role["kind"] == "ClusterRole" {
            self.find(&format!("clusterroles.{RBAC}"), "", name)
        } else {
            self.find(&format!("roles.{RBAC}"), namespace, name)
        };
        let Some(found) = found else {
            return ControlFlow::Continue(());
        };
        json::items(found, &["rules"]).iter().try_for_each(&mut *visit)?;
        // Why here: no controller fills aggregated roles, so their rules are collected at each check.
        for selector in json::items(found, &["aggregationRule", "clusterRoleSelectors"]) {
            let labels = crate::selector::Labels::of_object(selector);
            let resource = format!("clusterroles.{RBAC}").into();
            for (_, other) in self.store.list(&resource, "") {
                if labels.matches(other) && !std::sync::Arc::ptr_eq(other, found) {
                    json::items(other, &["rules"]).iter().try_for_each(&mut *visit)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits all rules of a user, in a namespace or cluster-wide, until `visit` breaks off.
    fn rules_for(
        &self,
        user: &User,
        namespace: &str,
        visit: &mut dyn FnMut(&Value) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut collect = |resource: String, namespace: &str| {
            let resource = resource.into();
            for (key, binding) in self.store.list(&resource, namespace) {
                let bound = json::items(binding, &["subjects"])
                    .iter()
                    .any(|subject| is_subject(subject, user, &key.namespace));
                if bound {
                    self.rules_of(&binding["roleRef"], &key.namespace, visit)?;
                }
            }
            ControlFlow::Continue(())
        };
        collect(format!("clusterrolebindings.{RBAC}"), "")?;
        if !namespace.is_empty() {
            collect(format!("rolebindings.{RBAC}"), namespace)?;
        }
        ControlFlow::Continue(())
    }
}

impl Server {
    fn may_everything(&self, user: &User) -> bool {
        self.options().authorization == Authorization::AllowAll
            || user.groups.iter().any(|group| group == MASTERS)
    }

    fn may(&self, user: &User, wish: &Wish) -> bool {
        if self.may_everything(user) {
            return true;
        }
        let namespace = if wish.url.is_some() { "" } else { &wish.namespace };
        let mut enough = |rule: &Value| {
            if allows(rule, wish) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        self.state().rules_for(user, namespace, &mut enough).is_break()
    }

    /// Fails unless the user may do this.
    pub(crate) fn authorize(
        &self,
        user: &User,
        verb: impl FnOnce() -> &'static str,
        path: &Path,
    ) -> Result<(), Failure> {
        if self.may_everything(user) {
            return Ok(());
        }
        let verb = verb();
        let itself = path.plural == "namespaces" && path.group.is_empty();
        let wish = Wish {
            verb: verb.to_owned(),
            group: path.group.clone(),
            resource: path.plural.clone(),
            subresource: path.subresource.clone(),
            name: path.name.clone(),
            namespace: if itself {
                path.name.clone()
            } else {
                path.namespace.clone()
            },
            url: None,
        };
        if self.may(user, &wish) {
            return Ok(());
        }
        let about = About {
            group: &path.group,
            kind: &path.plural,
            name: &path.name,
        };
        let resource = if path.subresource.is_empty() {
            path.plural.clone()
        } else {
            format!("{}/{}", path.plural, path.subresource)
        };
        let place = if wish.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", wish.namespace)
        };
        let why = format!(
            "User {:?} cannot {verb} resource {resource:?} in API group {:?} {place}",
            user.name, path.group
        );
        Err(Failure::forbidden(about, &why))
    }

    /// Fails unless the user may see a path outside the resources.
    pub(crate) fn authorize_path(&self, user: &User, method: &Method, path: &str) -> Result<(), Failure> {
        let verb = method.as_str().to_lowercase();
        let wish = Wish {
            verb: verb.clone(),
            url: Some(path.to_owned()),
            ..Wish::default()
        };
        if self.may(user, &wish) {
            return Ok(());
        }
        Err(Failure::forbidden_path(&user.name, &verb, path))
    }

    /// Answers the reviews of tokens and access.
    pub(crate) fn review(
        &self,
        request: &Request<bytes::Bytes>,
        path: &Path,
        user: &User,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Answer>, Failure> {
        let kind = match (path.group.as_str(), path.plural.as_str()) {
            ("authentication.k8s.io", "tokenreviews") => "TokenReview",
            ("authentication.k8s.io", "selfsubjectreviews") => "SelfSubjectReview",
            ("authorization.k8s.io", "subjectaccessreviews") => "SubjectAccessReview",
            ("authorization.k8s.io", "selfsubjectaccessreviews") => "SelfSubjectAccessReview",
            ("authorization.k8s.io", "localsubjectaccessreviews") => "LocalSubjectAccessReview",
            ("authorization.k8s.io", "selfsubjectrulesreviews") => "SelfSubjectRulesReview",
            _ => return Ok(None),
        };
        if *request.method() != Method::POST || !path.name.is_empty() || path.version != "v1" {
            return Err(Failure::method_not_allowed());
        }
        let content_type = request
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default();
        let mut review = if content_type == crate::request::PROTOBUF {
            crate::protobuf::decode(request.body()).ok_or_else(|| {
                Failure::unsupported_media_type("this message is not read as protobuf; send it as JSON")
            })?
        } else {
            parse(request.body(), content_type)?
        };
        let definition = format!("{}.{kind}", crate::kinds::definition_group(&path.group));
        if let Some(node) = schema::definition(&definition) {
            let (typed, findings) = decode::builtin(review, node, kind);
            if let Some(wrong) = findings.wrong {
                let message = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {wrong}");
                return Err(Failure::bad_request(message));
            }
            warnings.extend(
                findings
                    .unknown
                    .iter()
                    .map(|path| format!("unknown field {path:?}")),
            );
            review = typed;
        }
        json::set(
            &mut review,
            &["apiVersion"],
            crate::kinds::api_version(&path.group, "v1"),
        );
        json::set(&mut review, &["kind"], kind);
        let about = About {
            group: &path.group,
            kind,
            name: "",
        };
        if !path.namespace.is_empty() {
            json::set(&mut review, &["metadata", "namespace"], path.namespace.as_str());
        }
        match kind {
            "TokenReview" => self.review_token(&mut review)?,
            "SelfSubjectReview" => {
                json::set(&mut review, &["status"], json!({"userInfo": user_info(user)}));
                json::set(
                    &mut review,
                    &["metadata", "creationTimestamp"],
                    crate::clock::seconds(self.now()),
                );
            }
            "SelfSubjectRulesReview" => {
                if json::text(&review, &["spec", "namespace"]).is_empty() {
                    return Err(Failure::bad_request("no namespace on request"));
                }
                self.review_rules(&mut review, user);
            }
            _ => self.review_access(&mut review, About { kind: "", ..about }, kind, user)?,
        }
        Ok(Some(Answer::Json(StatusCode::CREATED, review)))
    }

    fn review_token(&self, review: &mut Value) -> Result<(), Failure> {
        let token = json::text(review, &["spec", "token"]).to_owned();
        if token.is_empty() {
            return Err(Failure::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let recognized = self.state().recognize(&token, self.now());
        let wanted = json::texts(review, &["spec", "audiences"]);
        let status = match recognized {
            Some((user, audiences)) => {
                let common: Vec<String> = audiences
                    .iter()
                    .filter(|audience| wanted.is_empty() || wanted.contains(&audience.as_str()))
                    .cloned()
                    .collect();
                if common.is_empty() {
                    json!({"user": {}, "error": "token audiences is invalid for the target audiences"})
                } else {
                    json!({"authenticated": true, "user": user_info(&user), "audiences": common})
                }
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        };
        json::set(review, &["status"], status);
        Ok(())
    }

    fn review_access(
        &self,
        review: &mut Value,
        about: About<'_>,
        kind: &str,
        user: &User,
    ) -> Result<(), Failure> {
        let spec = review["spec"].clone();
        let subject = if kind == "SelfSubjectAccessReview" {
            user.clone()
        } else {
            let groups = json::texts(&spec, &["groups"]);
            User {
                name: json::text(&spec, &["user"]).to_owned(),
                uid: json::text(&spec, &["uid"]).to_owned(),
                groups: groups.into_iter().map(str::to_owned).collect(),
                extra: std::collections::BTreeMap::new(),
            }
        };
        let (resource, url) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
        let mut causes = Vec::new();
        if resource.is_object() == url.is_object() {
            let says = if resource.is_object() {
                "cannot be specified in combination with resourceAttributes"
            } else {
                "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            };
            causes.push(if resource.is_object() {
                crate::failure::Cause::invalid("spec.nonResourceAttributes", url, says)
            } else {
                crate::failure::Cause::invalid("spec.resourceAttributes", &Value::Null, says)
            });
        }
        if kind == "LocalSubjectAccessReview" {
            let own = json::text(review, &["metadata", "namespace"]);
            if resource.is_object() && json::text(resource, &["namespace"]) != own {
                let says = "must match metadata.namespace";
                causes.push(crate::failure::Cause::invalid(
                    "spec.resourceAttributes.namespace",
                    &resource["namespace"],
                    says,
                ));
            }
            if url.is_object() {
                let says = "disallowed on this kind of request";
                causes.push(crate::failure::Cause::invalid(
                    "spec.nonResourceAttributes",
                    url,
                    says,
                ));
            }
        }
        if subject.name.is_empty() && subject.groups.is_empty() {
            let says = "at least one of user or group must be specified";
            causes.push(crate::failure::Cause::invalid("spec.user", &"".into(), says));
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(about, &causes));
        }
        let text = |field: &str| json::text(resource, &[field]).to_owned();
        let wish = if url.is_object() {
            Wish {
                verb: json::text(url, &["verb"]).to_owned(),
                url: Some(json::text(url, &["path"]).to_owned()),
                ..Wish::default()
            }
        } else {
            Wish {
                verb: text("verb"),
                group: text("group"),
                resource: text("resource"),
                subresource: text("subresource"),
                name: text("name"),
                namespace: text("namespace"),
                url: None,
            }
        };
        let allowed = self.may(&subject, &wish);
        json::set(review, &["status"], json!({"allowed": allowed}));
        if allowed && !subject.groups.iter().any(|group| group == MASTERS) {
            review["status"]["reason"] = "RBAC: allowed by a role that is bound to the user".into();
        }
        Ok(())
    }

    fn review_rules(&self, review: &mut Value, user: &User) {
        let namespace = json::text(review, &["spec", "namespace"]).to_owned();
        let mut rules = Vec::new();
        let mut collect = |rule: &Value| {
            rules.push(rule.clone());
            ControlFlow::Continue(())
        };
        let _all = self.state().rules_for(user, &namespace, &mut collect);
        let (urls, resources): (Vec<Value>, Vec<Value>) = rules
            .into_iter()
            .partition(|rule| rule["nonResourceURLs"].is_array());
        json::set(review, &["spec"], json!({}));
        json::set(
            review,
            &["status"],
            json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false}),
        );
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}
