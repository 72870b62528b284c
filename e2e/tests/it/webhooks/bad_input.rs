//! Bad input: every answer is clear, and the process goes on.

use kube::Client;
use serde_json::{Value, json};

use super::ground::{KUEUE, create_strictly, judge, on_cluster, try_create};
use super::serving::Server;

const QUEUES: &str = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
const JSON: &str = "application/json";

fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
}

fn review(object: &Value) -> Value {
    let (kind, resource) = match object["kind"].as_str() {
        Some("ClusterQueue") => (
            json!({"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "ClusterQueue"}),
            "clusterqueues",
        ),
        _ => (json!({"group": "", "version": "v1", "kind": "Pod"}), "pods"),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "name": "a", "dryRun": false, "kind": kind,
            "resource": {"group": kind["group"], "version": kind["version"], "resource": resource},
            "userInfo": {"username": "me"}, "oldObject": null, "options": null, "object": object,
        },
    })
}

fn conversion(version: &str, objects: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-2", "desiredAPIVersion": version, "objects": objects}})
}

async fn still_answers(client: &Client, server: &Server) {
    let (status, answer) = server.post(QUEUES, JSON, &review(&queue("q", &json!({})))).await;
    assert_eq!(
        (status, &answer["response"]["allowed"]),
        (200, &json!(true)),
        "{answer}"
    );
    try_create(client, &queue("good", &json!({}))).await.unwrap();
}

#[test]
fn wrong_types_unknown_fields_and_too_much_are_refused_by_the_server_or_by_us() {
    on_cluster(|_, client| async move {
        for (about, spec, words) in [
            (
                "a text for a list",
                json!({"resourceGroups": "all"}),
                "spec.resourceGroups",
            ),
            ("a number for a name", json!({"cohortName": 7}), "spec.cohortName"),
            ("a list for a map", json!({"preemption": []}), "spec.preemption"),
            (
                "an unknown word",
                json!({"queueingStrategy": "Fair"}),
                "spec.queueingStrategy",
            ),
            (
                "an unknown field",
                json!({"cohrt": "x"}),
                "unknown field \"spec.cohrt\"",
            ),
        ] {
            let said = create_strictly(&client, &queue("bad", &spec)).await.unwrap_err();
            assert!(said.contains(words), "{about}: {said}");
        }
        let filler = "x".repeat(10 << 20);
        let mut huge = queue("huge", &json!({}));
        huge["metadata"]["annotations"] = json!({ "filler": filler });
        let said = create_strictly(&client, &huge).await.unwrap_err();
        assert!(
            said.to_lowercase().contains("too large") || said.contains("limit is"),
            "{said}"
        );
        let groups: Vec<Value> = (0..16)
            .map(|group| {
                let quota = json!({"name": format!("r{group}"), "nominalQuota": "1"});
                let flavors: Vec<Value> = (0..63)
                    .map(|index| json!({"name": format!("f{group}-{index}"), "resources": [quota]}))
                    .collect();
                json!({"coveredResources": [format!("r{group}")], "flavors": flavors})
            })
            .collect();
        let answer = try_create(&client, &queue("wide", &json!({"resourceGroups": groups}))).await;
        judge(
            "1,008 flavors",
            &answer,
            "vclusterqueue.kb.io",
            Some("Too many: 1008: must have at most 256 items"),
        );
    });
}

#[test]
fn garbage_is_told_apart_from_reviews() {
    on_cluster(|_, client| async move {
        let server = Server::find(&client).await;
        for path in [QUEUES, "/mutate-batch-v1-job", "/convert"] {
            for body in [
                &b"{"[..],
                b"",
                b"null",
                b"[]",
                b"\xff\xfe\x00",
                b"\"text\"",
                &[b'['; 5000],
            ] {
                let (status, answer) = server.send("POST", path, JSON, body.to_vec()).await;
                assert_eq!(status, 400, "{path} {body:?} {answer}");
                assert_eq!(answer["kind"], "Status");
                assert!(answer["message"].as_str().unwrap().contains("Review"), "{answer}");
            }
            let (status, answer) = server.send("POST", path, "text/plain", b"{}".to_vec()).await;
            assert_eq!((status, &answer["reason"]), (415, &json!("UnsupportedMediaType")));
            let (status, answer) = server.send("GET", path, JSON, Vec::new()).await;
            assert_eq!((status, &answer["reason"]), (405, &json!("MethodNotAllowed")));
        }
        let (status, _) = server
            .send("POST", "/validate-nothing", JSON, b"{}".to_vec())
            .await;
        assert_eq!(status, 404);
        still_answers(&client, &server).await;
    });
}

#[test]
fn a_review_that_cannot_be_answered_is_refused() {
    on_cluster(|_, client| async move {
        let server = Server::find(&client).await;
        let good = review(&queue("q", &json!({})));
        for uid in [json!(""), json!(7), json!(null)] {
            let mut wrong = good.clone();
            wrong["request"]["uid"] = uid;
            let (status, answer) = server.post(QUEUES, JSON, &wrong).await;
            assert_eq!(status, 400, "{answer}");
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let (status, answer) = server.post(QUEUES, JSON, &review(&pod)).await;
        assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(false)));
        let text = "this webhook checks ClusterQueue of kueue.x-k8s.io/v1beta2, not Pod of /v1";
        assert_eq!(answer["response"]["status"]["message"], text);
        let wrong = review(&queue("q", &json!({"resourceGroups": "all"})));
        let (status, answer) = server.post(QUEUES, JSON, &wrong).await;
        assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(false)));
        let said = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(said.starts_with("the ClusterQueue cannot be read: "), "{said}");
        still_answers(&client, &server).await;
    });
}

#[test]
fn a_conversion_that_cannot_be_made_fails_as_a_whole_and_names_the_object() {
    on_cluster(|_, client| async move {
        let server = Server::find(&client).await;
        let good = queue("fine", &json!({"cohortName": "c"}));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}});
        for (version, objects, words) in [
            (
                "kueue.x-k8s.io/v7",
                json!([good]),
                "ClusterQueue fine (objects[0]) cannot be converted to kueue.x-k8s.io/v7",
            ),
            (
                "kueue.x-k8s.io/v1beta1",
                json!([good, pod]),
                "Pod n/p (objects[1]) cannot be converted",
            ),
            (
                "kueue.x-k8s.io/v1beta1",
                json!([good, "text"]),
                "(objects[1]) cannot be converted",
            ),
            ("", json!([good]), "ClusterQueue fine (objects[0])"),
        ] {
            let (status, answer) = server
                .post("/convert", JSON, &conversion(version, &objects))
                .await;
            assert_eq!(status, 200, "{answer}");
            let response = &answer["response"];
            assert_eq!(response["uid"], "u-2");
            assert_eq!(response["result"]["status"], "Failure");
            assert_eq!(response["convertedObjects"], json!([]));
            let said = response["result"]["message"].as_str().unwrap();
            assert!(said.contains(words), "{said}");
        }
        let many = json!(vec![good; 2000]);
        let (status, answer) = server
            .post("/convert", JSON, &conversion("kueue.x-k8s.io/v1beta1", &many))
            .await;
        assert_eq!(status, 200);
        let converted = answer["response"]["convertedObjects"].as_array().unwrap();
        assert_eq!(converted.len(), 2000);
        assert!(converted.iter().all(|object| object["spec"]["cohort"] == "c"));
        still_answers(&client, &server).await;
    });
}

#[test]
fn a_body_without_end_is_cut_off() {
    on_cluster(|_, client| async move {
        let server = Server::find(&client).await;
        // The server answers before it has read all, so the sender may see the answer or a closed connection.
        let sent = server.try_send("POST", QUEUES, JSON, vec![b' '; 9 << 20]).await;
        if let Ok((status, answer)) = sent {
            assert_eq!(
                (status, &answer["reason"]),
                (413, &json!("RequestEntityTooLarge"))
            );
        }
        still_answers(&client, &server).await;
    });
}
