//! With `appwrapper.protectAdmission` only a user with the right to admit Workloads may start a queued `AppWrapper`.

use std::fs;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_e2e::stage::apply;
use serde_json::{Value, json};

use super::{Room, pod, run, solo};
use crate::shared::{client_as, eventually};

/// Gives alice rights in the namespace.
async fn grant(room: &Room, name: &str, group: &str, plural: &str) {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": name, "namespace": room.name});
    let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": ["patch"]});
    for object in [
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": "alice"}],
        }),
    ] {
        apply(&room.client, object).await.unwrap();
    }
}

async fn alice() -> Client {
    let solo = solo().await.read().await;
    let file = solo.dir().join("kubeconfig-of-the-administrator");
    solo.plane().write_kubeconfig(&file).unwrap();
    client_as(&fs::read_to_string(&file).unwrap(), "alice").await
}

/// Spec: appwrapper B107, N-18
#[test]
fn a_user_starts_no_queued_wrapper_without_the_right_to_admit_workloads() {
    run("wrap-protected", |room| async move {
        room.furnish("10m").await;
        room.queue("aw", json!([{"template": pod("protected", 600)}]))
            .await;
        grant(&room, "edit", "workload.codeflare.dev", "appwrappers").await;
        let api: Api<AppWrapper> = Api::namespaced(alice().await, room.name);
        let write = |patch: Value| {
            let api = api.clone();
            async move {
                let patched = api
                    .patch("aw", &PatchParams::default(), &Patch::Merge(patch))
                    .await;
                patched.map(drop).map_err(|error| error.to_string())
            }
        };
        let note = json!({"metadata": {"annotations": {"example.com/note": "mine"}}});
        // Why more than once: the API server learns of new rights a moment later.
        eventually(|| async { write(note.clone()).await.ok() }).await;

        let start = json!({"spec": {"suspend": false}});
        let refused = write(start.clone()).await.unwrap_err();
        assert!(
            refused.contains("User alice may not change spec.suspend of an AppWrapper that is queued"),
            "{refused}"
        );
        let stored = room.wrapper("aw").await.unwrap();
        let mut components = json!(stored.spec.components);
        components[0]["podSetInfos"] = json!([{"nodeSelector": {"pool": "reserved"}}]);
        let refused = write(json!({"spec": {"components": components}}))
            .await
            .unwrap_err();
        assert!(refused.contains("spec.components[0].podSetInfos"), "{refused}");
        assert!(room.wrapper("aw").await.unwrap().spec.suspend);

        grant(&room, "admit", "kueue.x-k8s.io", "workloads/status").await;
        eventually(|| async { write(start.clone()).await.ok() }).await;
        room.delete("aw").await;
    });
}
