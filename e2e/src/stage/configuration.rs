//! The configuration files of processes on this machine.

use serde_json::{Value, json};

use super::SYSTEM_NAMESPACE;

/// The key of a configuration whose value goes into the `RoadsteadConfiguration`.
const OURS: &str = "roadstead";

/// Two documents: the reference's configuration and Roadstead's. JSON is YAML. The value of `over` at [`OURS`] is merged over
/// Roadstead's, everything else over the reference's; keys that are null there are left out.
pub(super) fn render_config([health, metrics, webhook]: [u16; 3], over: &Value) -> String {
    let mut over = over.clone();
    let over_ours = over.as_object_mut().and_then(|over| over.remove(OURS));
    let mut theirs = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SYSTEM_NAMESPACE,
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": format!("127.0.0.1:{metrics}")},
        "webhook": {"host": "127.0.0.1", "port": webhook},
        "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": 0},
        "multiKueue": {"gcInterval": "10s", "workerLostTimeout": "15m"},
    });
    merge(&mut theirs, &over);
    if let Some(keys) = theirs.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    // Why: not every version of the file has all of these keys; a null removes a key.
    if let Some(keys) = theirs.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    let mut ours = json!({
        "apiVersion": "config.roadstead.dev/v1alpha1",
        "kind": "RoadsteadConfiguration",
        "webhook": {"url": format!("https://127.0.0.1:{webhook}")},
        "multiKueue": {"allowLoopbackWorkers": true, "workerLostPolicy": "Wait"},
    });
    merge(&mut ours, &over_ours.unwrap_or_else(|| json!({})));
    format!("{theirs:#}\n---\n{ours:#}\n")
}

/// Merges objects key by key; any other value replaces.
pub fn merge(into: &mut Value, over: &Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (key, value) in over {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, over) => *into = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_merged_key_by_key() {
        let fence = json!({"multiKueue": {"workerLostPolicy": "Fence"}});
        let over = json!({"multiKueue": {"gcInterval": "1s"}, OURS: fence});
        let text = render_config([1, 2, 3], &over);
        let (theirs, ours) = text.split_once("\n---\n").unwrap();
        let theirs: Value = serde_json::from_str(theirs).unwrap();
        assert_eq!(
            theirs["multiKueue"],
            json!({"gcInterval": "1s", "workerLostTimeout": "15m"})
        );
        assert_eq!(theirs["webhook"]["port"], 3);
        let ours: Value = serde_json::from_str(ours).unwrap();
        assert_eq!(ours["webhook"]["url"], "https://127.0.0.1:3");
        assert_eq!(
            ours["multiKueue"],
            json!({"allowLoopbackWorkers": true, "workerLostPolicy": "Fence"})
        );
        assert!(theirs.get(OURS).is_none());
    }
}
