//! Failures of requests: a `metav1.Status` with the code, reason and message of a real API server.

use http::StatusCode;
use serde_json::{Map, Value, json};

/// One complaint about one field, as in `status.details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self {
            reason,
            message,
            field: field.into(),
        }
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self::new("FieldValueRequired", field, message)
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", shown(value));
        Self::new("FieldValueInvalid", field, message)
    }

    /// Wire: for a custom resource's structure, a real server quotes the value's type instead of the value.
    pub(crate) fn invalid_type(field: impl Into<String>, type_name: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {type_name:?}: {detail}");
        Self::new("FieldValueTypeInvalid", field, message)
    }

    /// Wire: for a broken rule of a custom resource, a real server quotes an object or list by its type.
    pub(crate) fn invalid_typed(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        match value {
            Value::Object(_) => Self::invalid(field, &"object".into(), detail),
            Value::Array(_) => Self::invalid(field, &"array".into(), detail),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Self::invalid(field, value, detail)
            }
        }
    }

    pub(crate) fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {}", shown(value));
        Self::new("FieldValueDuplicate", field, message)
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            allowed.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(crate) fn too_long(field: impl Into<String>, max: u64) -> Self {
        let message = format!("Too long: may not be more than {max} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    pub(crate) fn too_many(field: impl Into<String>, count: usize, max: u64) -> Self {
        let message = format!("Too many: {count}: must have at most {max} items");
        Self::new("FieldValueTooMany", field, message)
    }

    /// Whether this cause keeps the rules of a custom resource from being evaluated.
    pub(crate) fn blocks(&self) -> bool {
        [
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueNotSupported",
            "FieldValueTypeInvalid",
        ]
        .contains(&self.reason)
    }

    /// The cause that says that the rules were not evaluated because the shape is wrong.
    pub(crate) fn unchecked() -> Self {
        let says = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        Self::invalid("<nil>", &Value::Null, says)
    }

    fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

/// A value as a message quotes it.
fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), |text| format!("{text:?}"))
}

/// A failed request, with its whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    plain: bool,
    status: Option<Value>,
    /// The `continue` token of an expired list.
    token: Option<String>,
}

/// The object that a failure names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    /// The resource's plural, or the kind where the server says the kind.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn details(self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        details
    }

    /// `jobs.batch`, or `pods`.
    fn qualified(self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            reason,
            message: message.into(),
            details: None,
            plain: false,
            status: None,
            token: None,
        }))
    }

    fn with(mut self, details: impl Into<Value>) -> Self {
        self.0.details = Some(details.into());
        self
    }

    pub(crate) fn not_found(about: About<'_>) -> Self {
        let message = format!("{} {:?} not found", about.qualified(), about.name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(about.details())
    }

    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(json!({}))
    }

    /// A path that belongs to no API.
    pub(crate) fn no_such_page() -> Self {
        let mut failure = Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found\n");
        failure.0.plain = true;
        failure
    }

    pub(crate) fn already_exists(about: About<'_>) -> Self {
        let message = format!("{} {:?} already exists", about.qualified(), about.name);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with(about.details())
    }

    pub(crate) fn conflict(about: About<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            about.qualified(),
            about.name
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(about.details())
    }

    /// The object was changed since the client read it.
    pub(crate) fn modified(about: About<'_>) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, why)
    }

    /// Fields of a server-side apply that others own: pairs of a sentence and the field.
    pub(crate) fn apply_conflict(message: String, fields: &[(String, String)]) -> Self {
        let causes: Vec<Value> = fields
            .iter()
            .map(|(message, field)| {
                json!({"reason": "FieldManagerConflict", "message": message, "field": field})
            })
            .collect();
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(json!({"causes": causes}))
    }

    pub(crate) fn invalid(about: About<'_>, causes: &[Cause]) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for cause in causes {
            let line = cause.line();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let lines = if let [line] = lines.as_slice() {
            line.clone()
        } else {
            format!("[{}]", lines.join(", "))
        };
        let message = format!("{} {:?} is invalid: {lines}", about.qualified(), about.name);
        let mut details = about.details();
        details.insert(
            "causes".to_owned(),
            causes.iter().map(Cause::json).collect::<Vec<_>>().into(),
        );
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(details)
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(json!({}))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(about: About<'_>, why: &str) -> Self {
        let name = if about.name.is_empty() {
            String::new()
        } else {
            format!(" {:?}", about.name)
        };
        let message = format!("{}{name} is forbidden: {why}", about.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(about.details())
    }

    /// A path outside the APIs that this user may not see.
    pub(crate) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(json!({}))
    }

    pub(crate) fn terminating(about: About<'_>, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(about, &why);
        let mut details = about.details();
        details.insert(
            "causes".to_owned(),
            json!([{"reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]),
        );
        failure.0.details = Some(details.into());
        failure
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A page of a version that is no longer kept, with a `continue` token for the present state.
    pub(crate) fn expired_page(message: &str, token: String) -> Self {
        let mut failure = Self::expired(message);
        failure.0.token = Some(token);
        failure
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(json!({}))
    }

    pub(crate) fn unsupported_media_type(message: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// A media type that the server does not read for any resource.
    pub(crate) fn unknown_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
        .with(json!({}))
    }

    pub(crate) fn not_acceptable(message: &str) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message).with(json!({}))
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with(json!({"causes": [{"message": message}]}))
    }

    /// An internal error without a `reason`, as a real server answers some.
    pub(crate) fn internal_plain(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// An applied configuration that cannot be typed. Wire: a real server answers 500 too.
    pub(crate) fn internal_apply(message: &str) -> Self {
        let message = format!(
            "failed to create manager for existing fields: failed to convert new object to smd typed: {message}"
        );
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// A feature of a real server that this one does not have.
    pub(crate) fn not_implemented(what: &str) -> Self {
        let message = format!("{what} is not built into this embedded API server; use a real one for it");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    /// A group that another process is registered to serve.
    pub(crate) fn not_forwarded(group: &str, version: &str) -> Self {
        let message = format!(
            "{group}/{version} is served by another process, to which this embedded API server does not forward; ask that process itself or use a real API server"
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The refusal of an admission webhook.
    pub(crate) fn denied(webhook: &str, status: Option<&Value>) -> Self {
        let said = |field: &str| {
            status
                .and_then(|status| status[field].as_str())
                .unwrap_or_default()
        };
        let message = match (said("message"), said("reason")) {
            ("", "") => format!("admission webhook {webhook:?} denied the request without explanation"),
            ("", reason) => format!("admission webhook {webhook:?} denied the request: {reason}"),
            (message, _) => format!("admission webhook {webhook:?} denied the request: {message}"),
        };
        let code = status
            .and_then(|status| status["code"].as_u64())
            .and_then(|code| u16::try_from(code).ok())
            .and_then(|code| StatusCode::from_u16(code).ok())
            .filter(|code| code.as_u16() >= 400)
            .unwrap_or(StatusCode::FORBIDDEN);
        let mut failure = Self::new(code, "", message.clone());
        let mut body = Map::new();
        if let Some(Value::Object(given)) = status {
            body.clone_from(given);
        }
        body.insert("message".to_owned(), message.into());
        failure.0.status = Some(body.into());
        failure
    }

    pub(crate) fn code(&self) -> StatusCode {
        self.0.code
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.0.code == StatusCode::NOT_FOUND
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// With empty details, as built-in resources answer where custom ones give none.
    pub(crate) fn with_empty_details(self) -> Self {
        self.with(json!({}))
    }

    /// The text of an answer that is no `Status`.
    pub(crate) fn plain(&self) -> Option<&str> {
        self.0.plain.then_some(self.0.message.as_str())
    }

    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code.as_u16(),
        });
        if !self.0.reason.is_empty() {
            status["reason"] = self.0.reason.into();
        }
        if let Some(token) = &self.0.token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        if let Some(details) = &self.0.details {
            status["details"] = details.clone();
        }
        if let Some(Value::Object(given)) = &self.0.status {
            for (key, value) in given {
                status[key] = value.clone();
            }
            status["code"] = self.0.code.as_u16().into();
            status["status"] = "Failure".into();
        }
        status
    }
}
