//! A worker whose API server has no share left for the manager: its API Priority and Fairness answers 429.

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{from_value, json};
use tokio::time::Instant;

use super::fixture::{EAST, MANAGER, Room, WEST, alone};
use crate::shared::eventually;

/// East has the most room, so that everything is sent there as long as it is well. What is wide fits nowhere else.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "64"), (EAST, "48"), (WEST, "2")];
const WIDE: usize = 8;
/// How many refusals are waited for before it is looked how long they took.
const REFUSALS: u64 = 8;

/// Nothing that a manager may create here gets a share.
async fn squeeze(room: Room) {
    let east = room.shared.client(EAST);
    let params = PostParams::default();
    let level = json!({
        "metadata": {"name": room.name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let levels: Api<PriorityLevelConfiguration> = Api::all(east.clone());
    levels.create(&params, &from_value(level).unwrap()).await.unwrap();
    let schema = json!({
        "metadata": {"name": room.name},
        "spec": {
            "priorityLevelConfiguration": {"name": room.name}, "matchingPrecedence": 50,
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "system:serviceaccounts:roadstead-system"}}],
                "resourceRules": [{
                    "verbs": ["create"], "apiGroups": ["kueue.x-k8s.io", "batch"],
                    "resources": ["workloads", "jobs"], "namespaces": [room.name],
                }],
            }],
        },
    });
    let schemas: Api<FlowSchema> = Api::all(east);
    schemas
        .create(&params, &from_value(schema).unwrap())
        .await
        .unwrap();
    eventually(|| async {
        let conditions = schemas.get(room.name).await.ok()?.status?.conditions?;
        let dangling = conditions
            .iter()
            .find(|each| each.type_.as_deref() == Some("Dangling"))?;
        (dangling.status.as_deref() == Some("False")).then_some(())
    })
    .await;
}

async fn release(room: Room) {
    let east = room.shared.client(EAST);
    let params = DeleteParams::default();
    let schemas: Api<FlowSchema> = Api::all(east.clone());
    schemas.delete(room.name, &params).await.unwrap();
    let levels: Api<PriorityLevelConfiguration> = Api::all(east);
    levels.delete(room.name, &params).await.unwrap();
}

/// How many requests east has answered so.
async fn refusals(room: Room) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = room.shared.client(EAST).request_text(request).await.unwrap();
    let of_room = format!("flow_schema=\"{}\"", room.name);
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_flowcontrol_rejected_requests_total{") && line.contains(&of_room)
    });
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Spec: safety F23, I12
#[test]
fn a_worker_that_says_429_is_left_alone_as_long_as_it_asks_and_holds_up_nobody() {
    alone("busy", EAST_IS_LARGER, |room| async move {
        room.submit(room.job("calm", "1", 1)).await;
        assert_eq!(room.started("calm").await, EAST);
        room.job_is(MANAGER, "calm", "Complete").await;
        squeeze(room).await;

        let began = Instant::now();
        let wide: Vec<String> = (0..WIDE).map(|index| format!("wide-{index}")).collect();
        for name in &wide {
            room.submit(room.job(name, "4", 1)).await;
        }
        let refused = eventually(|| async {
            let refused = refusals(room).await;
            (refused >= REFUSALS).then_some(refused)
        })
        .await;
        // It asks for a second at least each time. Two in each, because some are under way when one is answered.
        let fair = 2 * (began.elapsed().as_secs() + 1) + 2;
        assert!(refused <= fair, "{refused} refusals in {:?}", began.elapsed());

        room.submit(room.job("narrow", "1", 1)).await;
        assert_eq!(room.started("narrow").await, WEST);
        room.job_is(MANAGER, "narrow", "Complete").await;
        release(room).await;
        for name in &wide {
            assert_eq!(room.started(name).await, EAST);
            let ended = room.job_is(MANAGER, name, "Complete").await;
            assert_eq!(ended.status.unwrap().succeeded, Some(1), "{name}");
        }
        room.is_swept().await;
    });
}
