//! Sends a trace to one server.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::normal::Answer;
use super::trace::Step;

/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause before a review is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// The user agent, and so the field manager.
const AGENT: &str = "conformance/1";

/// Why a trace could not be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request could not be written.
    #[error("writing the request {step:?}")]
    Request {
        /// The step.
        step: String,
        /// The reason.
        #[source]
        source: http::Error,
    },
    /// The server did not answer.
    #[error("no answer to {step:?}")]
    Send {
        /// The step.
        step: String,
        /// The reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// The answer did not come in time.
    #[error("no whole answer to {step:?} after {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout {
        /// The step.
        step: String,
    },
}

/// Values of a server's earlier answers that later steps need.
#[derive(Default)]
struct Memory {
    objects: BTreeMap<String, Value>,
    /// The `continue` token of the last list.
    token: String,
    /// The token of the last service account.
    bearer: String,
}

impl Memory {
    fn fill(&self, text: &str) -> String {
        if text == "$continue" {
            return self.token.clone();
        }
        if text == "$token" {
            return self.bearer.clone();
        }
        let said = |path: &str, field: &str| {
            let found = self.objects.get(path).map(|object| &object["metadata"][field]);
            found.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if let Some(path) = text.strip_prefix("$rv:") {
            return said(path, "resourceVersion");
        }
        if let Some(path) = text.strip_prefix("$uid:") {
            return said(path, "uid");
        }
        text.to_owned()
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill(text).into(),
            Value::Array(list) => list.iter().map(|inner| self.fill_value(inner)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(name, inner)| (name.clone(), self.fill_value(inner)))
                .collect(),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain.clone(),
        }
    }

    fn fill_path(&self, path: &str) -> String {
        let Some((head, query)) = path.split_once('?') else {
            return path.to_owned();
        };
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((name, value)) => format!(
                    "{name}={}",
                    self.fill(value).replace('=', "%3D").replace('+', "%2B")
                ),
                None => part.to_owned(),
            })
            .collect();
        format!("{head}?{}", parts.join("&"))
    }

    fn learn(&mut self, answer: &Value) {
        if let Some(token) = answer["metadata"]["continue"].as_str() {
            token.clone_into(&mut self.token);
        }
        if let Some(token) = answer["status"]["token"].as_str() {
            token.clone_into(&mut self.bearer);
        }
        let (kind, name) = (&answer["kind"], &answer["metadata"]["name"]);
        if let (Some(kind), Some(name)) = (kind.as_str(), name.as_str())
            && kind != "Status"
        {
            self.objects.insert(format!("{kind}/{name}"), answer.clone());
        }
    }
}

/// Sends a trace and returns the answers.
pub async fn play(client: &kube::Client, namespace: &str, steps: &[Step]) -> Result<Vec<Answer>, Error> {
    let mut memory = Memory::default();
    let mut answers = Vec::new();
    for step in steps {
        let path = memory.fill_path(&step.path.replace("{ns}", namespace));
        let named = format!("{} {path}", step.method);
        let body = step.body.as_ref().map(|body| {
            let text = body.to_string().replace("{ns}", namespace);
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            memory.fill_value(&body).to_string().into_bytes()
        });
        let body = body.unwrap_or_default();
        let asked = Instant::now();
        let answer = loop {
            let request = Request::builder()
                .method(step.method)
                .uri(&path)
                .header("content-type", step.content_type)
                .header("accept", step.accept)
                .header("user-agent", AGENT)
                .body(Body::from(body.clone()))
                .map_err(|source| Error::Request {
                    step: named.clone(),
                    source,
                })?;
            let answer = timeout(ANSWER_TIMEOUT, answer(client, request, step.events, &named))
                .await
                .map_err(|_elapsed| Error::Timeout { step: named.clone() })??;
            let refused = step.until_allowed && answer.body["status"]["allowed"] != true;
            if !refused || asked.elapsed() > ANSWER_TIMEOUT {
                break answer;
            }
            sleep(PAUSE).await;
        };
        memory.learn(&answer.body);
        answers.push(answer);
    }
    Ok(answers)
}

async fn answer(
    client: &kube::Client,
    request: Request<Body>,
    events: usize,
    step: &str,
) -> Result<Answer, Error> {
    let failed = |source: kube::Error| Error::Send {
        step: step.to_owned(),
        source: Box::new(source),
    };
    let response = client.send(request).await.map_err(failed)?;
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            bytes.extend_from_slice(&data);
        }
        let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
        if events > 0 && code == 200 && lines >= events {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = if events > 0 && code == 200 {
        text.lines()
            .take(events)
            .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| line.into()))
            .collect()
    } else {
        serde_json::from_str(&text).unwrap_or_else(|_| text.as_str().into())
    };
    Ok(Answer { code, body, warnings })
}
