//! The Helm charts, made from the objects of `roadstead install` with expressions where a chart has values.
//!
//! Invariant: rendered with the same values, a chart gives the objects of [`roadstead_api::install::manifests`]; a test in `e2e`
//! renders the charts with Helm.

use roadstead_api::install::objects::{Group, When, definitions, groups, may_be_of_others};
use roadstead_api::install::owned::{DEFINITIONS, VERSION};
use roadstead_api::install::place::{Place, Ports, configuration};
use roadstead_api::install::values::{FIXED, NEWER, OLDER, Values};
use roadstead_api::rights::Process;
use roadstead_kinds::{Kind, TABLE};
use serde_json::{Value, json};

use crate::{Error, Manifest, generated, yaml};

/// Folder, below this crate's, in which the charts are.
pub const CHART_DIR: &str = "charts";
/// Namespace of the processes in the plain manifests.
const NAMESPACE: &str = "kueue-system";

/// Annotation of an object that Helm keeps when the release is uninstalled.
const KEPT_BY_HELM: &str = "helm.sh/resource-policy";
/// Begin and end of a mark: text that `expressed` turns into a Helm expression.
const OPEN: &str = "<<";
const CLOSE: &str = ">>";

/// All files of the three charts, by path below [`CHART_DIR`].
///
/// # Errors
///
/// Only if an object cannot be written as YAML; a test checks every file.
pub fn charts() -> Result<Vec<Manifest>, Error> {
    let mut files = of_definitions()?;
    for process in Process::ALL {
        files.extend(of_process(process)?);
    }
    Ok(files)
}

fn file(chart: &str, name: &str, content: String) -> Manifest {
    Manifest {
        file_name: format!("{chart}/{name}"),
        content,
    }
}

fn of_process(process: Process) -> Result<Vec<Manifest>, Error> {
    let chart = process.name();
    let place = place();
    let mut files = vec![
        file(chart, "Chart.yaml", about(chart, describe(process))?),
        file(
            chart,
            "values.yaml",
            documented(&schema(), &json!(Values::default()))?,
        ),
        file(chart, "values.schema.json", format!("{:#}\n", schema())),
        file(chart, "templates/_helpers.tpl", helpers(process, &place)?),
        file(chart, "templates/NOTES.txt", notes(process)),
    ];
    for group in groups(process, &place) {
        let name = format!("templates/{}.yaml", group.name);
        files.push(file(chart, &name, template(&group)?));
    }
    Ok(files)
}

const fn describe(process: Process) -> &'static str {
    match process {
        Process::Manager => "Roadstead on a management cluster: one queue in front of many worker clusters",
        Process::Worker => "Roadstead on a worker cluster: quotas, queues and preemption for batch jobs",
    }
}

fn about(chart: &str, description: &str) -> Result<String, Error> {
    let about = json!({
        "apiVersion": "v2", "name": chart, "description": description, "type": "application",
        "version": VERSION.trim_start_matches('v'), "appVersion": VERSION, "kubeVersion": ">=1.32.0-0",
    });
    Ok(generated(&yaml(chart, &about)?))
}

/// The settings of an installation, with a mark in place of each setting that is a value of the chart.
fn place() -> Place {
    let text = |expression: &str| format!("{OPEN}str {expression}{CLOSE}");
    let number = |key: &str| Value::from(format!("{OPEN}int .Values.{key}{CLOSE}"));
    let tree = |key: &str| Value::from(format!("{OPEN}yaml .Values.{key}{CLOSE}"));
    Place {
        namespace: text(".Release.Namespace"),
        account: text(".Values.serviceAccount"),
        image: text("include `roadstead.image` ."),
        pull_policy: text(".Values.image.pullPolicy").into(),
        replicas: number("replicas"),
        ports: Ports {
            health: number("ports.health"),
            metrics: number("ports.metrics"),
            webhook: number("ports.webhook"),
            visibility: number("ports.visibility"),
        },
        controllers: text("join `,` .Values.controllers"),
        log_format: text(".Values.logFormat"),
        config: format!("{OPEN}config{CLOSE}"),
        config_digest: text("include `roadstead.config` . | sha256sum"),
        resources: tree("resources"),
        node_selector: tree("nodeSelector"),
        tolerations: tree("tolerations"),
        priority_class: text(".Values.priorityClass"),
        api_servers: tree("networkPolicy.apiServers"),
    }
}

/// The Helm template of a group of objects.
fn template(group: &Group) -> Result<String, Error> {
    let mut documents = Vec::new();
    for object in &group.objects {
        // Why: Helm makes the namespace of a release itself.
        if object["kind"] != "Namespace" {
            documents.push(expressed(&yaml(&group.name, object)?));
        }
    }
    let text = documents.join("---\n");
    let text = match group.when {
        When::Always => text,
        When::Integration(kind) => only_if(&asks_for(kind), &text),
        When::VirtualNodes => only_if(
            "dig \"virtualNodes\" \"enable\" false .Values.roadsteadConfiguration",
            &text,
        ),
        When::Budget => only_if(".Values.podDisruptionBudget.enabled", &text),
        When::Network => only_if(".Values.networkPolicy.enabled", &text),
        When::People => only_if(".Values.rolesForPeople.enabled", &text),
        When::Webhooks => only_if(
            "dig \"webhook\" \"manageConfigurations\" true .Values.roadsteadConfiguration",
            &text,
        ),
        When::Monitor => only_if(
            "and .Values.serviceMonitor.enabled (.Capabilities.APIVersions.Has \"monitoring.coreos.com/v1/ServiceMonitor\")",
            &text,
        ),
    };
    let check = if group.name == "deployment" {
        "{{- include \"roadstead.check\" . }}\n"
    } else {
        ""
    };
    Ok(generated(&format!("{check}{text}")))
}

/// The Helm condition that the values name this integration, or one that works through it.
fn asks_for(kind: &Kind) -> String {
    let through =
        |row: &&'static Kind| row.framework == kind.framework || row.implies == Some(kind.framework);
    let listed = "(dig \"integrations\" \"frameworks\" (list) .Values.configuration)";
    let any: Vec<String> = { TABLE.iter() }
        .filter(through)
        .map(|row| format!("(has \"{}\" {listed})", row.framework))
        .collect();
    format!("or {}", any.join(" "))
}

fn only_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// The template of an object that other software may own. Helm applies it only if the object is missing or was made by Helm, and keeps
/// the object when the release is uninstalled.
fn where_absent(object: &Value) -> Result<String, Error> {
    let mut object = object.clone();
    object["metadata"]["annotations"][KEPT_BY_HELM] = "keep".into();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api, kind, name) = (
        text(&object["apiVersion"]),
        text(&object["kind"]),
        text(&object["metadata"]["name"]),
    );
    let found = format!("{{{{- $found := lookup \"{api}\" \"{kind}\" \"\" \"{name}\" }}}}\n");
    let helms = "or (not $found) (eq (dig \"metadata\" \"labels\" \"app.kubernetes.io/managed-by\" \"\" $found) \"Helm\")";
    let yaml = expressed(&yaml(&name, &object)?);
    Ok(format!("{found}{}", only_if(helms, &yaml)))
}

/// Turns marks in YAML into expressions of Helm.
fn expressed(yaml: &str) -> String {
    let mut text = String::new();
    for line in yaml.lines() {
        text.push_str(&expressed_line(line));
        text.push('\n');
    }
    text
}

fn expressed_line(line: &str) -> String {
    let Some((before, rest)) = line.split_once(OPEN) else {
        return line.to_owned();
    };
    let (mark, after) = rest.split_once(CLOSE).unwrap_or((rest, ""));
    let (form, expression) = mark.split_once(' ').unwrap_or((mark, ""));
    let bare = before.trim_end_matches(['"', '\'']);
    // The mark is the whole value, quoted or not.
    let is_whole = bare.ends_with(' ') && after.trim_matches(['"', '\'']).is_empty();
    let indent = line.len() - line.trim_start().len() + 2;
    match form {
        "int" if is_whole => format!("{bare}{{{{ {expression} }}}}"),
        "yaml" => format!("{bare}{{{{- toYaml {expression} | nindent {indent} }}}}"),
        "config" => format!("{bare}|-\n{{{{ include \"roadstead.config\" . | indent {indent} }}}}"),
        _ if is_whole => format!("{bare}{{{{ {expression} | quote }}}}"),
        _ => expressed_line(&format!("{before}{{{{ {expression} }}}}{after}")),
    }
}

fn helpers(process: Process, place: &Place) -> Result<String, Error> {
    let [theirs, ours] = configuration(&place.namespace, &place.ports);
    let (theirs, ours) = (
        expressed(&yaml("configuration", &theirs)?),
        expressed(&yaml("configuration", &ours)?),
    );
    let define = |name: &str, body: &str| {
        format!("{{{{- define \"roadstead.{name}\" -}}}}\n{body}\n{{{{- end }}}}\n\n")
    };
    let separator = "{{ if hasPrefix \"sha256:\" .Values.image.tag }}@{{ else }}:{{ end }}";
    let image = format!(
        "{{{{ .Values.image.repository }}}}/{}{separator}{{{{ .Values.image.tag }}}}",
        process.name()
    );
    let merged = |base: &str, over: &str| {
        format!(
            "{{{{ mergeOverwrite (include \"roadstead.{base}\" . | fromYaml) .Values.{over} | toYaml }}}}"
        )
    };
    let older = format!("(eq (dig \"apiVersion\" \"\" .Values.configuration) \"{OLDER}\")");
    let theirs_over = format!(
        "{{{{- $theirs := include \"roadstead.theirs\" . | fromYaml }}}}\n\
         {{{{- if {older} }}}}{{{{- $_ := unset $theirs \"{NEWER}\" }}}}{{{{- end }}}}\n\
         {{{{- mergeOverwrite $theirs .Values.configuration | toYaml }}}}"
    );
    let config = format!("{theirs_over}\n---\n{}", merged("ours", "roadsteadConfiguration"));
    let elects = "(dig \"leaderElection\" \"leaderElect\" true .Values.configuration)";
    let check = format!(
        "{{{{- if and (gt (int .Values.replicas) 1) (not {elects}) }}}}\n\
         {{{{- fail \"configuration.leaderElection.leaderElect is false with several replicas: all would decide at once; set replicas to 1\" }}}}\n\
         {{{{- end }}}}\n\
         {{{{- if ne (len (uniq (values .Values.ports))) (len .Values.ports) }}}}\n\
         {{{{- fail \"ports: each must be another one\" }}}}\n\
         {{{{- end }}}}\n\
         {{{{- if and {older} (ne (int .Values.ports.visibility) {port}) }}}}\n\
         {{{{- fail \"ports.visibility: a configuration of version {OLDER} cannot choose it; allowed is {port}, or write configuration in version v1beta2\" }}}}\n\
         {{{{- end }}}}\n\
         {{{{- $set := include \"roadstead.theirs\" . | fromYaml }}}}{}",
        FIXED.map(is_as_set).concat(),
        port = Values::default().ports.visibility
    );
    Ok([
        define("image", &image),
        define("theirs", theirs.trim_end()),
        define("ours", ours.trim_end()),
        define("config", &config),
        define("check", &check),
    ]
    .concat())
}

/// The Helm check that a key of the configuration is as the installation writes it.
fn is_as_set((path, instead): (&[&str], &str)) -> String {
    let keys: Vec<String> = path.iter().map(|key| format!("\"{key}\"")).collect();
    let (keys, name) = (keys.join(" "), path.join("."));
    format!(
        "\n{{{{- $wanted := dig {keys} \"\" $set | toString }}}}\n\
         {{{{- $found := dig {keys} $wanted .Values.configuration | toString }}}}\n\
         {{{{- if ne $found $wanted }}}}\n\
         {{{{- fail (printf \"configuration.{name} is %s, but the installation sets %s; leave it out and use {instead}\" $found $wanted) }}}}\n\
         {{{{- end }}}}"
    )
}

fn notes(process: Process) -> String {
    let next = match process {
        Process::Manager => {
            "Register a worker cluster: roadstead cluster join NAME --kubeconfig WORKER.kubeconfig"
        }
        Process::Worker => {
            "On the management cluster: roadstead cluster join NAME --kubeconfig THIS.kubeconfig"
        }
    };
    format!(
        "{} {VERSION} is installed in namespace {{{{ .Release.Namespace }}}}.\nWhether it is healthy: roadstead doctor --namespace {{{{ .Release.Namespace }}}}\n{next}\n",
        process.name()
    )
}

fn of_definitions() -> Result<Vec<Manifest>, Error> {
    let chart = DEFINITIONS;
    let values = "# Namespace of the manager or the worker, whose webhook converts older versions; empty: that of this release.\nnamespace: \"\"\n";
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
        "properties": {
            "global": {"type": "object"},
            "namespace": {
                "type": "string",
                "description": "Namespace of the manager or the worker, whose webhook converts older versions",
            },
        },
    });
    let mut files = vec![
        file(
            chart,
            "Chart.yaml",
            about(
                chart,
                "The custom resources of Roadstead: updated by an upgrade, never deleted by Helm",
            )?,
        ),
        file(chart, "values.yaml", generated(values)),
        file(chart, "values.schema.json", format!("{schema:#}\n")),
    ];
    let namespace = format!("{OPEN}str .Values.namespace | default .Release.Namespace{CLOSE}");
    for mut definition in definitions(&namespace) {
        crate::write_whole_numbers(&mut definition);
        let name = definition["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let text = if may_be_of_others(&name) {
            where_absent(&definition)?
        } else {
            definition["metadata"]["annotations"][KEPT_BY_HELM] = "keep".into();
            expressed(&yaml(&name, &definition)?)
        };
        files.push(file(chart, &format!("templates/{name}.yaml"), generated(&text)));
    }
    Ok(files)
}

/// The schema of the values; `global` is a key that Helm adds itself.
fn schema() -> Value {
    let settings =
        schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<Values>()
        .to_value();
    schema["properties"]["global"] = json!({"type": "object", "description": "Of Helm; not read."});
    schema
}

/// The default values as YAML, with the description of each key as a comment above it.
fn documented(schema: &Value, defaults: &Value) -> Result<String, Error> {
    let mut lines = vec!["# What each key means; values.schema.json says what is allowed.".to_owned()];
    for (key, value) in defaults.as_object().into_iter().flatten() {
        let about = &schema["properties"][key];
        lines.extend(comment(about, ""));
        match about["properties"].as_object().zip(value.as_object()) {
            Some((properties, fields)) if !fields.is_empty() => {
                lines.push(format!("{key}:"));
                for (field, value) in fields {
                    lines.extend(comment(&properties[field], "  "));
                    let yaml = yaml(key, &json!({ field: value }))?;
                    lines.extend(yaml.lines().map(|line| format!("  {line}")));
                }
            }
            Some(_) | None => lines.push(yaml(key, &json!({ key: value }))?.trim_end().to_owned()),
        }
    }
    lines.push(String::new());
    Ok(generated(&lines.join("\n")))
}

fn comment<'a>(about: &'a Value, indent: &'a str) -> impl Iterator<Item = String> + 'a {
    let text = about["description"].as_str().into_iter();
    text.flat_map(str::lines)
        .map(move |line| format!("{indent}# {line}"))
}

/// The plain manifests for `kubectl apply -f`: one file with our definitions, one with those that other software owns, and one per process
/// with the default values. They have no `ServiceMonitor`, because few clusters serve that kind.
///
/// # Errors
///
/// Only if an object cannot be written as YAML or the default values contradict each other; a test shows that neither happens.
pub fn plain() -> Result<Vec<Manifest>, Error> {
    let mut values = Values::default();
    values.service_monitor.enabled = false;
    let mut crds = definitions(NAMESPACE);
    crds.iter_mut().for_each(crate::write_whole_numbers);
    let is_of_others = |crd: &Value| crd["metadata"]["name"].as_str().is_some_and(may_be_of_others);
    let (others, ours): (Vec<Value>, Vec<Value>) = crds.into_iter().partition(is_of_others);
    let mut files = vec![
        crate::documents("crds.yaml".to_owned(), &ours)?,
        crate::documents("crds-of-others.yaml".to_owned(), &others)?,
    ];
    for process in Process::ALL {
        let objects = roadstead_api::install::manifests(process, NAMESPACE, &values).map_err(|refusal| {
            Error::Values {
                why: refusal.to_string(),
            }
        })?;
        files.push(crate::documents(format!("{}.yaml", process.name()), &objects)?);
    }
    Ok(files)
}
