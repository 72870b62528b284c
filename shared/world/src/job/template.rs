//! Pods from a Job's template, and the indexes of pods.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::action::TRACKING;

/// Annotation and label with a pod's index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Longest host name.
const HOST_MAX: usize = 63;

/// A pod to create. The server chooses its name.
pub(super) fn pod(job: &Job, spec: &JobSpec, index: Option<i32>) -> Pod {
    let name = job.name_any();
    let template = spec.template.metadata.clone().unwrap_or_default();
    let mut pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(index.map_or_else(|| format!("{name}-"), |index| format!("{name}-{index}-"))),
            namespace: job.namespace(),
            labels: template.labels,
            annotations: template.annotations,
            finalizers: Some(
                template
                    .finalizers
                    .into_iter()
                    .flatten()
                    .chain([TRACKING.to_owned()])
                    .collect(),
            ),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name: name.clone(),
                uid: job.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: spec.template.spec.clone(),
        status: None,
    };
    if let Some(index) = index {
        number(&mut pod, &name, index);
    }
    pod
}

/// Puts the index into a pod and its containers, in each way that the API promises.
fn number(pod: &mut Pod, job: &str, index: i32) {
    for map in [&mut pod.metadata.labels, &mut pod.metadata.annotations] {
        map.get_or_insert_default()
            .insert(INDEX.to_owned(), index.to_string());
    }
    let Some(spec) = &mut pod.spec else { return };
    let host = format!("{job}-{index}");
    spec.hostname = spec
        .hostname
        .take()
        .or_else(|| (host.len() <= HOST_MAX).then_some(host));
    let initial = spec.init_containers.iter_mut().flatten();
    for container in initial.chain(&mut spec.containers) {
        let variables = container.env.get_or_insert_default();
        if variables.iter().all(|each| each.name != INDEX_VARIABLE) {
            variables.push(EnvVar {
                name: INDEX_VARIABLE.to_owned(),
                value: None,
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        api_version: None,
                        field_path: format!("metadata.labels['{INDEX}']"),
                    }),
                    ..EnvVarSource::default()
                }),
            });
        }
    }
}

pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// `0,1,3-5` as a set; unreadable parts are left out.
pub(super) fn parse_indexes(text: Option<&str>) -> BTreeSet<i32> {
    let parts = text.unwrap_or_default().split(',');
    parts
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?)
        })
        .flatten()
        .collect()
}

/// A set as `0,1,3-5`, with a dash for three or more in a row. `None` if it is empty.
pub(super) fn render_indexes(indexes: &BTreeSet<i32>) -> Option<String> {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let parts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_the_real_controller_writes_them() {
        for text in ["0", "0,1", "0-2", "1,3-5,7,8"] {
            let set = parse_indexes(Some(text));
            assert_eq!(render_indexes(&set).as_deref(), Some(text));
        }
        assert_eq!(render_indexes(&BTreeSet::new()), None);
        assert_eq!(parse_indexes(Some("2-4,9")), BTreeSet::from([2, 3, 4, 9]));
        assert_eq!(parse_indexes(None), BTreeSet::new());
    }
}
