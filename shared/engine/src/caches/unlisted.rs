//! Which kinds of objects are not listed, for the parts that wait for them.

use roadstead_kubeio::cache::Health;
use roadstead_kubeio::latest::{Follower, any_changed};
use roadstead_serve::health::Condition;

/// The kinds whose cache is not complete at the moment.
pub(crate) fn names(healths: &[(String, Follower<Health>)]) -> Vec<String> {
    let unlisted = healths.iter().filter(|(_, health)| !health.get().is_settled());
    unlisted.map(|(kind, _)| kind.clone()).collect()
}

/// Keeps `condition` up to date: which kinds are not listed yet, and why. Never ends.
pub(crate) async fn tell(mut healths: Vec<(String, Follower<Health>)>, condition: &Condition) {
    loop {
        let now = healths
            .iter_mut()
            .map(|(kind, health)| (kind.as_str(), health.see()));
        if let Some(text) = text(now) {
            condition.not_ready(text);
        }
        any_changed(healths.iter_mut().map(|(_, health)| health)).await;
    }
}

fn text<'a>(healths: impl Iterator<Item = (&'a str, Health)>) -> Option<String> {
    let unlisted: Vec<String> = healths
        .filter_map(|(kind, health)| match health {
            Health::Live | Health::NotServed => None,
            Health::Starting => Some(format!("{kind} (no answer of the API server yet)")),
            Health::Failing(why) => Some(format!("{kind} ({why})")),
        })
        .collect();
    (!unlisted.is_empty()).then(|| {
        let (unlisted, remedy) = (
            unlisted.join(", "),
            "deploy/rights, for a kind that is not served deploy/crds",
        );
        format!("not listed yet: {unlisted}; after a refusal apply {remedy}")
    })
}

#[cfg(test)]
mod tests {
    use roadstead_kubeio::latest::Latest;
    use roadstead_serve::health::Readiness;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readiness_names_the_kinds_that_are_not_listed_yet_and_why() {
        let kinds = [Health::Starting, Health::Starting, Health::Live].map(Latest::new);
        let healths = ["jobs", "workloads", "cohorts"].map(str::to_owned).into_iter();
        let healths: Vec<_> = healths.zip(kinds.iter().map(Latest::follow)).collect();
        assert_eq!(names(&healths), ["jobs", "workloads"]);
        let readiness = Readiness::default();
        let condition = readiness.condition("caches");
        let play = async {
            tokio::task::yield_now().await;
            let missing = readiness.missing().concat();
            assert!(
                missing.starts_with("caches: not listed yet: jobs (no answer"),
                "{missing}"
            );
            kinds[0].set(Health::Live);
            kinds[1].set(Health::Failing("forbidden".to_owned()));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            let missing = readiness.missing().concat();
            assert!(
                missing.contains("not listed yet: workloads (forbidden);"),
                "{missing}"
            );
        };
        tokio::select! {
            biased;
            () = play => {}
            () = tell(healths.clone(), &condition) => {}
        }
        assert_eq!(names(&healths), ["workloads"]);
    }
}
