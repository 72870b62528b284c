//! `roadstead cluster list`

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::CORDON;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::dispatch::Cordon;
use roadstead_kubeconfigs::check::{Rules, check};
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::write;
use serde::Serialize;
use url::Url;

use super::{active, secret_of};
use crate::access;
use crate::args::List;
use crate::failure::Failure;
use crate::output;
use crate::table::table;

/// The facts about one worker cluster. Absent values are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub name: String,
    /// `True`, `False` or `Unknown`.
    pub connected: String,
    /// The reason.
    pub reason: Option<String>,
    /// `cordoned`, `draining` or `leaving`, when no new jobs are sent to it.
    pub closed: Option<String>,
    /// Host and port of its API server.
    pub server: Option<String>,
    /// When the credential ends, RFC 3339.
    pub token_expires_at: Option<String>,
    /// When `connected` last changed, RFC 3339.
    pub since: Option<String>,
}

/// Prints all clusters.
pub async fn run(args: &List) -> Result<(), Failure> {
    let manager = access::manager(&args.manager).await?;
    let clusters = Api::<MultiKueueCluster>::all(manager.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| Failure::request("listing MultiKueueClusters failed", &error))?
        .items;
    let secrets = Api::<Secret>::namespaced(manager, &args.manager.namespace);
    let mut found = BTreeMap::new();
    for name in clusters.iter().filter_map(secret_of) {
        match secrets.get_opt(name).await {
            Ok(Some(secret)) => {
                found.insert(name.to_owned(), secret);
            }
            Ok(None) => {}
            Err(error) => {
                output::say(&format!(
                    "note: server and expiry are not shown: {}",
                    write::describe(&error)
                ));
                break;
            }
        }
    }
    let rows: Vec<Row> = clusters
        .iter()
        .map(|cluster| row(cluster, secret_of(cluster).and_then(|name| found.get(name))))
        .collect();
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("multikueuecluster.kueue.x-k8s.io/{}", row.name))
        .collect();
    output::result(args.output, &rows, &names.join("\n"), || shown(&rows))
}

fn row(cluster: &MultiKueueCluster, secret: Option<&Secret>) -> Row {
    let condition = active(cluster);
    // Why loopback is allowed here: the address is only shown.
    let server = secret
        .and_then(|found| secret::read("", Some(found)).ok())
        .and_then(|bytes| check(bytes, &Rules { allow_loopback: true }).ok())
        .and_then(|endpoint| host(&endpoint.server));
    Row {
        name: cluster.name_any(),
        connected: condition.map_or_else(|| "Unknown".to_owned(), |c| c.status.clone()),
        reason: condition.map(|c| c.reason.clone()),
        closed: closed(cluster).map(str::to_owned),
        server,
        token_expires_at: secret
            .and_then(secret::lifetime)
            .map(|lifetime| lifetime.expires.to_string()),
        since: condition.map(|c| c.last_transition_time.0.to_string()),
    }
}

/// The cordon as the manager reads it (`spec/multikueue.md 4.5`).
pub(crate) fn closed(cluster: &MultiKueueCluster) -> Option<&'static str> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some("leaving");
    }
    match Cordon::read(cluster.annotations().get(CORDON).map(String::as_str)) {
        Cordon::Open => None,
        Cordon::Leaving => Some("leaving"),
        Cordon::Drained => Some("draining"),
        Cordon::Closed => Some("cordoned"),
    }
}

fn host(server: &str) -> Option<String> {
    let url = Url::parse(server).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

fn shown(rows: &[Row]) -> String {
    if rows.is_empty() {
        output::say("no clusters; add one with: roadstead cluster join NAME --kubeconfig FILE");
        return String::new();
    }
    let header = [
        "NAME",
        "CONNECTED",
        "REASON",
        "CLOSED",
        "SERVER",
        "TOKEN EXPIRES",
        "SINCE",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            row.connected.clone(),
            row.reason.clone().unwrap_or_default(),
            row.closed.clone().unwrap_or_default(),
            row.server.clone().unwrap_or_default(),
            row.token_expires_at.clone().unwrap_or_default(),
            row.since.clone().unwrap_or_default(),
        ]
    });
    table(&header, cells.collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use roadstead_api::kueue::v1beta2::MultiKueueCluster;
    use serde_json::json;

    use super::{Row, host, row, shown};

    #[test]
    fn row_shows_condition_and_expiry() {
        let cluster: MultiKueueCluster = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
            "metadata": {"name": "east", "annotations": {"roadstead.dev/cordon": "drain"}},
            "spec": {"clusterSource": {"kubeConfig": {"location": "roadstead-east", "locationType": "Secret"}}},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "Connected",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
        }))
        .unwrap();
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"annotations": {"roadstead.dev/issued-at": "2026-11-21T10:00:00Z",
                "roadstead.dev/expires-at": "2026-11-21T11:00:00Z"}},
        }))
        .unwrap();
        let row = row(&cluster, Some(&secret));
        assert_eq!(
            row,
            Row {
                name: "east".into(),
                connected: "True".into(),
                reason: Some("Active".into()),
                closed: Some("draining".into()),
                server: None,
                token_expires_at: Some("2026-11-21T11:00:00Z".into()),
                since: Some("2026-11-21T10:00:00Z".into()),
            }
        );
        assert_eq!(
            shown(&[row]),
            "NAME   CONNECTED   REASON   CLOSED     SERVER   TOKEN EXPIRES          SINCE\n\
             east   True        Active   draining   -        2026-11-21T11:00:00Z   2026-11-21T10:00:00Z"
        );
    }

    #[test]
    fn host_is_shown_with_its_port() {
        assert_eq!(host("https://k.example").as_deref(), Some("k.example:443"));
        assert_eq!(host("https://[::1]:6443").as_deref(), Some("[::1]:6443"));
    }
}
