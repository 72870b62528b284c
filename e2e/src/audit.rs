//! Counting requests: reading a plane's audit log ([`crate::options::Audit::Metadata`]).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roadstead_apiserver::Asked;
use serde::Deserialize;
use serde_json::json;

/// The stage at which a request is complete. Each request reaches it once, a watch when it ends.
const COMPLETE: &str = "ResponseComplete";

/// Why an audit log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("reading audit log {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A line is not an audit event.
    #[error("audit log {} line {line} is not an audit event", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
}

/// One finished request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The client's `User-Agent`, empty if it sent none.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the HTTP method in lower case for
    /// requests that are not for a resource.
    pub verb: String,
    /// The resource's plural; the path for requests that are not for a resource.
    pub resource: String,
    /// `status`, `token`, ...; empty if none.
    pub subresource: String,
    /// The HTTP status, 0 if none was sent.
    pub code: u16,
    /// The second in which the request arrived, `2026-01-31T23:59:59`.
    pub second: String,
}

/// All finished requests, in the order in which they ended. Call it again for later ones; an incomplete last line is left
/// for the next call.
pub fn read(path: &Path) -> Result<Vec<Request>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut requests = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        reader.read_until(b'\n', &mut text).map_err(failed)?;
        if text.last() != Some(&b'\n') {
            break;
        }
        let event: Event = serde_json::from_slice(&text).map_err(|source| Error::Parse {
            path: path.to_owned(),
            line,
            source,
        })?;
        requests.extend(event.request());
    }
    Ok(requests)
}

/// The line of a request that an embedded server has answered.
pub(crate) fn line(asked: &Asked, now: Timestamp) -> String {
    let Asked {
        user_agent,
        verb,
        resource,
        subresource,
        code,
    } = asked;
    let mut event = json!({
        "stage": COMPLETE,
        "verb": verb,
        "userAgent": user_agent,
        "requestURI": resource,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": now.to_string(),
    });
    if !resource.starts_with('/') {
        event["objectRef"] = json!({"resource": resource, "subresource": subresource});
    }
    format!("{event}\n")
}

// Wire: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1, only the fields that are counted by.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default, rename = "requestReceivedTimestamp")]
    received: String,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Event {
    fn request(self) -> Option<Request> {
        let Self {
            stage,
            verb,
            user_agent,
            uri,
            object_ref,
            response_status,
            received,
        } = self;
        let code = response_status.map_or(0, |status| status.code);
        let path = || uri.split('?').next().unwrap_or_default().to_owned();
        let (resource, subresource) = object_ref.map_or_else(
            || (path(), String::new()),
            |object| (object.resource, object.subresource),
        );
        (stage == COMPLETE).then_some(Request {
            user_agent,
            verb,
            resource,
            subresource,
            code,
            second: received.split('.').next().unwrap_or_default().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_finished_requests_count_and_half_a_line_waits() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for (stage, tail) in [
            ("ResponseStarted", r#""objectRef":{"resource":"pods"}}"#),
            (
                COMPLETE,
                r#""objectRef":{"resource":"jobs","subresource":"status"},"responseStatus":{"code":409}}"#,
            ),
            (COMPLETE, r#""responseStatus":{"code":200}}"#),
        ] {
            let head = r#""verb":"patch","userAgent":"subject","requestURI":"/readyz?verbose",
                "requestReceivedTimestamp":"2026-01-31T23:59:59.123456Z""#
                .replace('\n', "");
            writeln!(file, r#"{{"stage":"{stage}",{head},{tail}"#).unwrap();
        }
        write!(file, r#"{{"stage":"Resp"#).unwrap();
        let request = |resource: &str, subresource: &str, code| Request {
            user_agent: "subject".to_owned(),
            verb: "patch".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            code,
            second: "2026-01-31T23:59:59".to_owned(),
        };
        assert_eq!(
            read(file.path()).unwrap(),
            [request("jobs", "status", 409), request("/readyz", "", 200)]
        );
    }

    #[test]
    fn what_an_embedded_server_writes_down_is_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let now: Timestamp = "2026-01-31T23:59:59.5Z".parse().unwrap();
        for (resource, subresource) in [("jobs", "status"), ("/version", "")] {
            let asked = Asked {
                user_agent: "subject/1".to_owned(),
                verb: "get".to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                code: 404,
            };
            file.write_all(line(&asked, now).as_bytes()).unwrap();
        }
        let found = read(file.path()).unwrap();
        let [job, version] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (job.resource.as_str(), job.subresource.as_str()),
            ("jobs", "status")
        );
        assert_eq!((job.user_agent.as_str(), job.code), ("subject/1", 404));
        assert_eq!(
            (version.resource.as_str(), version.second.as_str()),
            ("/version", "2026-01-31T23:59:59")
        );
    }
}
