//! `AppWrapper`: the rules that need no controller.

use serde_json::{Value, json};

use super::super::fixture::HUB;
use super::{Case, REQUIRED, change, in_versions, merged, no, no_change, ok};

const KIND: &str = "AppWrapper";
const FIXED: &str = "attempt to change immutable field";

fn wrapping(templates: &[Value]) -> Value {
    let components: Vec<_> = templates
        .iter()
        .map(|template| json!({"template": template}))
        .collect();
    json!({"components": components})
}

fn template(more: Value) -> Value {
    let spec = json!({"template": {"spec": {"containers": [], "fieldOfTheFuture": 1}}});
    merged(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}),
        more,
    )
}

fn status(status: Value) -> Case {
    Case {
        fields: json!({"status": status}),
        ..ok(KIND, json!({})).after(json!({"spec": wrapping(&[template(json!({}))])}))
    }
}

/// Spec: appwrapper 1.1, 1.2, 1.3, 3.3 V2, 3.5.
#[test]
fn a_wrapper_follows_the_rules_of_its_schema() {
    let job = || template(json!({}));
    let by = |manager: &str| merged(wrapping(&[job()]), json!({"managedBy": manager}));
    in_versions(&[HUB], || {
        vec![
            ok(KIND, wrapping(&[job()])),
            // The webhook refuses it.
            ok(KIND, wrapping(&[])),
            no(KIND, json!({}), REQUIRED),
            no(
                KIND,
                wrapping(&[json!({"apiVersion": "v1", "metadata": {}})]),
                "kind: Required value",
            ),
            no(
                KIND,
                wrapping(&[template(
                    json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}),
                )]),
                "Nested AppWrappers are forbidden",
            ),
            ok(
                KIND,
                json!({"components": [{"template": job(), "podSets": [{"path": "template.spec.template", "replicas": -1}]}]}),
            ),
            no(
                KIND,
                json!({"components": [{"template": job(), "podSets": [{"replicas": 1}]}]}),
                REQUIRED,
            ),
            change(
                KIND,
                wrapping(&[job()]),
                merged(wrapping(&[job()]), json!({"suspend": true})),
            ),
            no_change(KIND, wrapping(&[job()]), wrapping(&[job(), job()]), FIXED),
            no_change(KIND, by("a"), by("b"), FIXED),
            no_change(KIND, by(""), wrapping(&[job()]), FIXED),
            no_change(KIND, wrapping(&[job()]), by("a"), FIXED),
            status(
                json!({"phase": "AnyWord", "resettingCount": 1, "componentStatus": [
                    {"name": "", "kind": "", "apiVersion": "", "podSets": []},
                ]}),
            ),
            status(json!({"componentStatus": [{"name": "", "kind": "", "apiVersion": ""}]}))
                .refused(REQUIRED),
            status(json!({"componentStatus": [{"kind": "", "apiVersion": "", "podSets": []}]}))
                .refused(REQUIRED),
        ]
    });
}
