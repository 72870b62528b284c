//! An API server's answers as text, decoded only as far as needed.
//!
//! Why an own layer under kube's: `metadata.managedFields` is half of an object's size and no part of Roadstead reads it, so it
//! is cut out before decoding. Most watch events are our own writes, which are recognised by name and version alone.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use http::Request;
use kube::core::{ListMeta, Status};
use kube::{Client, Resource};
use roadstead_core::name::Key;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::bound::LINE_MAX;

/// One object, not decoded.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    text: &'a str,
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl<'a> Raw<'a> {
    /// Reads the fields that identify the object.
    pub(crate) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let Outline { metadata } = serde_json::from_str(text)?;
        Ok(Self { text, metadata })
    }

    /// Namespace (empty for cluster-scoped objects) and name.
    pub(crate) fn key(&self) -> Key {
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    pub(crate) fn uid(&self) -> Option<&str> {
        Some(&*self.metadata.uid).filter(|uid| !uid.is_empty())
    }

    pub(crate) fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// The object, without its managed fields.
    pub(crate) fn decode<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        let fields = self.metadata.managed_fields.map(RawValue::get);
        let cut = fields.and_then(|fields| {
            let at = fields.as_ptr().addr().checked_sub(self.text.as_ptr().addr())?;
            Some((self.text.get(..at)?, self.text.get(at + fields.len()..)?))
        });
        match cut {
            Some((before, after)) => serde_json::from_str(&[before, "null", after].concat()),
            None => serde_json::from_str(self.text),
        }
    }
}

/// The identity and version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Print {
    pub(crate) uid: Option<Box<str>>,
    /// `None` when its version is not a number, so that it cannot be compared.
    pub(crate) version: Option<u64>,
}

impl Print {
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            uid: meta.uid.as_deref().map(Into::into),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok()),
        }
    }
}

async fn text(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<String, kube::Error> {
    client
        .request_text(request.map_err(kube::Error::BuildRequest)?)
        .await
}

/// Sends a request whose answer is one object.
pub(crate) async fn object<K: DeserializeOwned>(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<K, kube::Error> {
    let text = text(client, request).await?;
    let object = Raw::read(&text).and_then(|raw| raw.decode());
    object.map_err(kube::Error::SerdeError)
}

/// Sends a request whose answer is a list: its objects and its metadata.
pub(crate) async fn list<K: DeserializeOwned>(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(Vec<K>, ListMeta), kube::Error> {
    page(&text(client, request).await?, decoded).map_err(kube::Error::SerdeError)
}

fn decoded<K: DeserializeOwned>(raw: &Raw<'_>) -> Result<K, serde_json::Error> {
    raw.decode()
}

/// Sends a request whose answer is a list: name, UID and version of each object, and the list's metadata.
pub(crate) async fn outlines(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(Vec<(Key, Print)>, ListMeta), kube::Error> {
    let outline = |raw: &Raw<'_>| {
        let (uid, version) = (raw.uid().map(Into::into), raw.version().parse().ok());
        Ok((raw.key(), Print { uid, version }))
    };
    page(&text(client, request).await?, outline).map_err(kube::Error::SerdeError)
}

fn page<T>(
    text: &str,
    read: impl Fn(&Raw<'_>) -> Result<T, serde_json::Error>,
) -> Result<(Vec<T>, ListMeta), serde_json::Error> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(default)]
        metadata: ListMeta,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    let page: Page<'_> = serde_json::from_str(text)?;
    let items = page.items.unwrap_or_default();
    let items = items.into_iter().map(|item| read(&Raw::read(item.get())?));
    Ok((items.collect::<Result<_, _>>()?, page.metadata))
}

#[derive(Debug)]
pub(crate) enum Told<'a> {
    Changed(Raw<'a>),
    Deleted(Raw<'a>),
    /// Nothing happened up to this version.
    Bookmark(Raw<'a>),
    /// The watch cannot go on.
    Failed(Box<Status>),
}

impl Told<'_> {
    /// The version up to which the watch has told everything.
    pub(crate) fn version(&self) -> Option<&str> {
        match self {
            Self::Changed(object) | Self::Deleted(object) | Self::Bookmark(object) => {
                Some(object.version()).filter(|version| !version.is_empty())
            }
            Self::Failed(_) => None,
        }
    }
}

pub(crate) struct Watch {
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) async fn open(
        client: &Client,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Self, kube::Error> {
        let stream = client
            .request_stream(request.map_err(kube::Error::BuildRequest)?)
            .await?;
        Ok(Self {
            stream: Box::pin(stream),
            line: Vec::new(),
        })
    }

    /// The next event; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Told<'_>>, kube::Error> {
        self.line.clear();
        let mut bounded = self.stream.as_mut().take(LINE_MAX);
        match bounded.read_until(b'\n', &mut self.line).await {
            Ok(_) if bounded.limit() == 0 => {
                let why = format!(
                    "the API server sends an event of more than {} MiB",
                    LINE_MAX >> 20
                );
                return Err(kube::Error::ReadEvents(std::io::Error::other(why)));
            }
            Ok(_) => {}
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(kube::Error::ReadEvents(error)),
        }
        // Why: a line cut off by the end of the connection is sent again by the next watch.
        if self.line.last() != Some(&b'\n') {
            return Ok(None);
        }
        told(&self.line).map(Some).map_err(kube::Error::SerdeError)
    }
}

fn told(line: &[u8]) -> Result<Told<'_>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: Kind,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    enum Kind {
        Added,
        Modified,
        Deleted,
        Bookmark,
        Error,
    }
    let line: Line<'_> = serde_json::from_slice(line)?;
    let text = line.object.get();
    Ok(match line.kind {
        Kind::Added | Kind::Modified => Told::Changed(Raw::read(text)?),
        Kind::Deleted => Told::Deleted(Raw::read(text)?),
        Kind::Bookmark => Told::Bookmark(Raw::read(text)?),
        Kind::Error => Told::Failed(serde_json::from_str(text)?),
    })
}

/// Whether the connection ended on time rather than broke.
fn is_end(error: &std::io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        let io = one.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
            // Wire: hyper tells this case only by the text of its error.
            || one.to_string().contains("unexpected EOF during chunk")
        {
            return true;
        }
        cause = one.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::{LINE_MAX, Raw, Told, Watch, told};

    fn stored() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "data": {"managedFields": "[]"},
            "metadata": {
                "annotations": {"managedFields": "mine"},
                "managedFields": [{"manager": "a \"b\"]", "operation": "Apply", "fieldsV1": {"f:data": {}}}],
                "name": "a", "namespace": "ns", "resourceVersion": "7", "uid": "u",
            },
        })
    }

    #[test]
    fn managed_fields_are_cut_out_and_nothing_else() {
        let mut object = stored();
        let text = object.to_string();
        let raw = Raw::read(&text).unwrap();
        assert_eq!((raw.key().to_string().as_str(), raw.version()), ("ns/a", "7"));
        assert_eq!(raw.uid(), Some("u"));
        let decoded: Value = raw.decode().unwrap();
        object["metadata"]["managedFields"] = Value::Null;
        assert_eq!(decoded, object);
        let typed: ConfigMap = raw.decode().unwrap();
        assert_eq!(typed.metadata.managed_fields, None);
        assert_eq!(typed.metadata.name.as_deref(), Some("a"));
    }

    #[test]
    fn a_line_is_read_whichever_field_comes_first() {
        let object = stored().to_string();
        for line in [
            format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"),
            format!("{{\"object\":{object},\"type\":\"ADDED\"}}\n"),
        ] {
            let Ok(Told::Changed(raw)) = told(line.as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!(
                raw.decode::<ConfigMap>().unwrap().metadata.uid.as_deref(),
                Some("u")
            );
        }
        let line = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
            .to_string();
        let Ok(Told::Failed(status)) = told(line.as_bytes()) else {
            panic!("{line}");
        };
        assert_eq!(status.code, 410);
    }

    /// Spec: safety S14
    #[tokio::test]
    async fn an_event_without_an_end_is_given_up() {
        let endless = futures::io::BufReader::new(futures::io::repeat(b' '));
        let mut watch = Watch {
            stream: Box::pin(endless),
            line: Vec::new(),
        };
        let refused = watch.next().await.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("an event of more than 8 MiB"), "{refused}");
        assert_eq!(u64::try_from(watch.line.len()).unwrap(), LINE_MAX);
    }
}
