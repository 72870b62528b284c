//! Objects of the management cluster, read with the caller's own rights and printed as kubectl prints them.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_kubeio::connect::Chosen;
use roadstead_kubeio::write::{self, Written};
use serde::Serialize as _;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Value, json};

use crate::access;
use crate::args::Home;
use crate::args::look::{ListFormat, Place};
use crate::failure::Failure;

/// Objects fetched at a time.
const PAGE: u32 = 500;

/// Connects to the management cluster that the flags of a command name.
pub(crate) async fn connect(home: &Home) -> Result<Client, Failure> {
    let chosen = Chosen {
        kubeconfig: home.kubeconfig.as_deref(),
        context: home.context.as_deref(),
    };
    access::local(chosen, "--kubeconfig").await
}

/// The namespaces that a command looks into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    One(String),
}

impl Scope {
    pub(crate) fn of(place: &Place, client: &Client) -> Self {
        if place.all_namespaces {
            return Self::All;
        }
        let named = place.namespace.clone();
        Self::One(named.unwrap_or_else(|| client.default_namespace().to_owned()))
    }

    /// The scope as a part of a sentence: `in namespace x`.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::All => "in any namespace".to_owned(),
            Self::One(namespace) => format!("in namespace {namespace}"),
        }
    }

    /// The end of a sentence that says that nothing was found: how to look into all namespaces.
    pub(crate) const fn wider(&self) -> &'static str {
        match self {
            Self::All => "",
            Self::One(_) => " (-A looks into all of them)",
        }
    }
}

/// All objects for which `keep` is true, read page by page.
pub(crate) async fn all<K>(
    api: &Api<K>,
    selector: Option<&str>,
    keep: impl Fn(&K) -> bool,
) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut page = ListParams::default().limit(PAGE);
    if let Some(selector) = selector {
        page = page.labels(selector);
    }
    let mut found = Vec::new();
    loop {
        let list = api.list(&page).await?;
        found.extend(list.items.into_iter().filter(&keep));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Converts an object to the type of its kind.
pub(crate) fn typed<K: DeserializeOwned>(object: &DynamicObject) -> Result<K, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(object)?)
}

/// Whether objects are printed as a list, or a single one by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object by itself: it was asked for by its name.
    One,
    List,
}

/// Objects for scripts, as kubectl prints them. `None` for the formats for people.
pub(crate) fn print(
    format: ListFormat,
    objects: &[DynamicObject],
    form: Form,
) -> Result<Option<String>, Failure> {
    let whole = || -> Result<Value, serde_json::Error> {
        let mut items = objects.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        if form == Form::One && items.len() == 1 {
            return Ok(items.remove(0));
        }
        Ok(json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}))
    };
    let text = match format {
        ListFormat::Table | ListFormat::Wide => return Ok(None),
        ListFormat::Name => {
            let names: Vec<String> = objects.iter().map(name).collect();
            Ok(names.join("\n"))
        }
        ListFormat::Json => whole().and_then(|value| pretty(&value)),
        ListFormat::Yaml => {
            whole().and_then(|value| serde_saphyr::to_string(&value).map_err(serde_json::Error::custom))
        }
    };
    text.map(Some).map_err(|error| {
        Failure::new(
            "the objects cannot be printed",
            error.to_string(),
            "try another --output",
        )
    })
}

/// JSON with an indent of four spaces, as kubectl prints it.
fn pretty(value: &Value) -> Result<String, serde_json::Error> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))?;
    String::from_utf8(text).map_err(serde_json::Error::custom)
}

/// The object without `managedFields`, which kubectl does not show either.
fn plain(object: &DynamicObject) -> Result<Value, serde_json::Error> {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(object)
}

/// `workload.kueue.x-k8s.io/job-train`
fn name(object: &DynamicObject) -> String {
    let types = object.types.clone().unwrap_or_default();
    let kind = types.kind.to_lowercase();
    match types.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", object.name_any()),
        None => format!("{kind}/{}", object.name_any()),
    }
}

/// Requests for objects of a kind, with all their fields.
pub(crate) fn untyped<K: Resource<DynamicType = ()>>(
    client: &Client,
    scope: Option<&Scope>,
) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    match scope {
        Some(Scope::One(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        Some(Scope::All) | None => Api::all_with(client.clone(), &resource),
    }
}

/// The kind of an object.
pub(crate) fn kind_of(object: &Value) -> ApiResource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api = text(&object["apiVersion"]);
    let (group, version) = api.split_once('/').unwrap_or(("", &api));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])))
}

/// Requests for objects of the kind and the namespace of this one.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let resource = kind_of(object);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Applies an object on the server, taking over the fields that it names.
pub(crate) async fn apply(client: &Client, object: &Value, manager: &str) -> Written<DynamicObject> {
    match serde_json::from_value::<DynamicObject>(object.clone()) {
        Ok(wanted) => write::apply(&api_of(client, object), &wanted, manager).await,
        Err(error) => Written::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde_json::{Value, json};

    use super::{Form, print};
    use crate::args::look::ListFormat;

    fn object(name: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "managedFields": [{"manager": "m"}]}, "spec": {"fieldOfLater": 1},
        }))
        .unwrap()
    }

    /// Spec: experience 3
    #[test]
    fn objects_are_printed_whole_as_kubectl_prints_them() {
        let text = |format, names: &[&str], form| {
            let objects: Vec<DynamicObject> = names.iter().map(|name| object(name)).collect();
            print(format, &objects, form).unwrap().unwrap()
        };
        let one: Value = serde_json::from_str(&text(ListFormat::Json, &["a"], Form::One)).unwrap();
        assert_eq!(one["spec"]["fieldOfLater"], 1);
        assert_eq!(one["metadata"], json!({"name": "a"}));
        let list: Value = serde_json::from_str(&text(ListFormat::Json, &["a"], Form::List)).unwrap();
        assert_eq!(
            (list["kind"].as_str(), list["items"][0]["kind"].as_str()),
            (Some("List"), Some("LocalQueue"))
        );
        let none: Value = serde_json::from_str(&text(ListFormat::Json, &[], Form::List)).unwrap();
        assert_eq!(none["items"], json!([]));
        let yaml = text(ListFormat::Yaml, &["a"], Form::One);
        assert!(
            yaml.contains("kind: LocalQueue\n") && yaml.contains("  name: a\n"),
            "{yaml}"
        );
        assert_eq!(
            text(ListFormat::Name, &["a", "b"], Form::List),
            "localqueue.kueue.x-k8s.io/a\nlocalqueue.kueue.x-k8s.io/b"
        );
        assert_eq!(print(ListFormat::Wide, &[], Form::List).unwrap(), None);
    }
}
