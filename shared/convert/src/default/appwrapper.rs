//! The user that submitted an `AppWrapper`. *Source*: `spec/appwrapper.md 3.2`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Longest label value, in bytes.
const VALUE_BYTES_MAX: usize = 63;

/// Overwrites the labels with the user that submitted an `AppWrapper`.
pub fn appwrapper_submitter(meta: &mut ObjectMeta, user: &str, uid: &str) {
    let labels = meta.labels.get_or_insert_default();
    for (key, value) in [
        ("workload.codeflare.dev/user", user),
        ("workload.codeflare.dev/userid", uid),
    ] {
        labels.insert(key.to_owned(), sanitised(value));
    }
}

/// A name as a label value: first it is cut, then forbidden characters are replaced, then the ends are trimmed.
fn sanitised(name: &str) -> String {
    let end = (0..=VALUE_BYTES_MAX.min(name.len()))
        .rev()
        .find(|end| name.is_char_boundary(*end))
        .unwrap_or(0);
    let cut = name.get(..end).unwrap_or_default();
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || "_.-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let text: String = cut.chars().map(legal).collect();
    text.trim_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Spec: appwrapper 3.2, B96, B97.
    #[test]
    fn the_submitter_is_written_whatever_stood_there() {
        for (name, expect) in [
            ("system:admin", "system_admin".to_owned()),
            (
                "system:serviceaccount:team1:alice",
                "system_serviceaccount_team1_alice".to_owned(),
            ),
            ("--x--", "x".to_owned()),
            ("", String::new()),
            (&"a".repeat(100), "a".repeat(63)),
            (&"é".repeat(40), String::new()),
        ] {
            let bad = ("workload.codeflare.dev/user".to_owned(), "bad".to_owned());
            let mut meta = ObjectMeta {
                labels: Some(BTreeMap::from([bad])),
                ..ObjectMeta::default()
            };
            appwrapper_submitter(&mut meta, name, "1-2");
            let labels = meta.labels.unwrap();
            assert_eq!(labels["workload.codeflare.dev/user"], expect);
            assert_eq!(labels["workload.codeflare.dev/userid"], "1-2");
        }
    }
}
