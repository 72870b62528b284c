//! Parsing of requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::Value;

use crate::failure::{About, Failure};
use crate::kinds::Kind;

/// The media type of protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's name, such as `system:serviceaccount:team:bot`.
    pub name: String,
    /// The user's UID; empty if unknown.
    pub uid: String,
    /// The user's groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// More about the user, as in the `extra` field of a `TokenReview`.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with groups; `system:authenticated` is added.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Self {
            name: name.into(),
            uid: String::new(),
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// An administrator: a member of `system:masters`, who may do everything.
    pub fn admin() -> Self {
        Self::new("admin", &["system:masters"])
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Path {
    /// Reads a path; nothing if it is no resource's.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(decode)
            .collect();
        let mut out = Self::default();
        match parts.first().map(String::as_str) {
            Some("api") if parts.len() > 2 => {
                out.version.clone_from(&parts[1]);
                parts.drain(..2);
            }
            Some("apis") if parts.len() > 3 => {
                out.group.clone_from(&parts[1]);
                out.version.clone_from(&parts[2]);
                parts.drain(..3);
            }
            _ => return None,
        }
        // Why: two parts name a namespace itself, and three may name its subresource.
        let itself = parts.len() == 3 && ["status", "finalize"].contains(&parts[2].as_str());
        if parts[0] == "namespaces" && parts.len() > 2 && !itself {
            out.namespace.clone_from(&parts[1]);
            parts.drain(..2);
        }
        let mut parts = parts.into_iter();
        out.plural = parts.next()?;
        out.name = parts.next().unwrap_or_default();
        out.subresource = parts.next().unwrap_or_default();
        if out.plural == "namespaces" && out.group.is_empty() {
            // Why: a real server authorizes a namespace as a cluster-scoped object.
            out.namespace = String::new();
        }
        parts.next().is_none().then_some(out)
    }
}

fn decode(part: &str) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    url::form_urlencoded::parse(format!("p={}", part.replace('+', "%2B")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// The parameters after the question mark.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        ["true", "1", "True"].contains(&self.get(name))
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

/// What happens to unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table,
    /// Only the metadata.
    Partial,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: Path,
    pub(crate) query: Query,
    pub(crate) kind: Arc<Kind>,
    pub(crate) user: User,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn of(request: &Request<Bytes>, path: Path, kind: Arc<Kind>, user: User) -> Self {
        Self {
            method: request.method().clone(),
            query: Query::parse(request.uri().query()),
            path,
            kind,
            user,
            headers: request.headers().clone(),
            body: request.body().clone(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn content_type(&self) -> &str {
        self.header("content-type")
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
    }

    /// The request's object, named by its resource.
    pub(crate) fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About {
            group: &self.kind.group,
            kind: &self.kind.plural,
            name,
        }
    }

    pub(crate) fn about_kind<'a>(&'a self, name: &'a str) -> About<'a> {
        About {
            group: &self.kind.group,
            kind: &self.kind.kind,
            name,
        }
    }

    pub(crate) fn manager(&self) -> String {
        let given = self.query.get("fieldManager");
        if !given.is_empty() {
            return given.to_owned();
        }
        let agent = self.header("user-agent");
        let agent = agent.split('/').next().unwrap_or_default();
        if agent.is_empty() {
            "unknown".to_owned()
        } else {
            agent.to_owned()
        }
    }

    pub(crate) fn field_validation(&self) -> Result<FieldValidation, Failure> {
        match self.query.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let about = About {
                    group: "meta.k8s.io",
                    kind: "CreateOptions",
                    name: "",
                };
                let allowed = ["Ignore", "Strict", "Warn"].map(str::to_owned);
                let cause = crate::failure::Cause::not_supported("fieldValidation", &other.into(), &allowed);
                Err(Failure::invalid(about, &[cause]))
            }
        }
    }

    /// The form that the client prefers among the supported ones.
    pub(crate) fn form(&self) -> Result<Form, Failure> {
        let accept = self.header("accept");
        if accept.is_empty() {
            return Ok(Form::Object);
        }
        for wanted in accept.split(',') {
            let mut parts = wanted.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !["application/json", "*/*", "application/*"].contains(&media) {
                continue;
            }
            let parameters: Vec<&str> = parts.collect();
            let as_kind = parameters
                .iter()
                .find_map(|parameter| parameter.strip_prefix("as="));
            match as_kind {
                None => return Ok(Form::Object),
                Some("Table") => return Ok(Form::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Form::Partial),
                Some(_) => {}
            }
        }
        let failure = Failure::not_acceptable(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        );
        Err(if self.kind.is_custom() {
            failure
        } else {
            failure.with_empty_details()
        })
    }

    /// The body as JSON or YAML, or one of the few messages that are read as protobuf.
    pub(crate) fn parse_body(&self) -> Result<Value, Failure> {
        if self.content_type() == PROTOBUF {
            return crate::protobuf::decode(&self.body).ok_or_else(|| {
                Failure::unsupported_media_type("this message is not read as protobuf; send it as JSON")
            });
        }
        parse(&self.body, self.content_type())
    }
}

/// Reads JSON, or YAML where the media type says so.
pub(crate) fn parse(body: &[u8], content_type: &str) -> Result<Value, Failure> {
    let unreadable = |error: String| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type known to the server): {error}"
        ))
    };
    if content_type.ends_with("yaml") {
        // Why first: JSON is YAML, most clients that apply send it, and it is read many times faster.
        if let Ok(value) = serde_json::from_slice(body) {
            return Ok(value);
        }
        let text = std::str::from_utf8(body).map_err(|error| unreadable(error.to_string()))?;
        return serde_saphyr::from_str(text)
            .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")));
    }
    serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))
}
