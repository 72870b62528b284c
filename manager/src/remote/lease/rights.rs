//! Of which kinds our account may patch jobs on a worker. Only such jobs get a finalizer, because the manager must be able to
//! take it off again.
//!
//! Invariant: a missing answer is no refusal. What was known before stays until an answer comes, and the manager asks until then.
//!
//! *Source*: `spec/safety.md 3.7`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use roadstead_api::constants::finalizers;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::retry::Backoff;
use roadstead_kubeio::trouble::Trouble;

use super::super::Remote;
use super::ANSWER_MAX;

/// First and longest pause until an unanswered question is asked again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Asks once for each kind.
pub(crate) async fn learn(client: &Client, remote: &Remote) -> Unanswered {
    let kinds = remote.jobs.iter().map(|jobs| jobs.resource.clone());
    ask(client, remote, kinds.collect()).await
}

/// The questions without an answer, and why the last one has none.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    kinds: Vec<ApiResource>,
    why: String,
}

impl Unanswered {
    pub(crate) fn exist(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Asks again until every question is answered.
    pub(crate) async fn learn(mut self, client: Client, remote: Arc<Remote>) {
        let (mut backoff, mut trouble) = (Backoff::new(AGAIN.0, AGAIN.1), Trouble::default());
        while self.exist() {
            if trouble.is_news(&self.why) {
                tracing::warn!(
                    cluster = %remote.name,
                    "the worker's API server did not say whether this manager may patch jobs there: {}; the last answer stays in use; \
                     asked again until there is an answer (SelfSubjectAccessReview)",
                    self.why
                );
            }
            tokio::time::sleep(backoff.pause()).await;
            self = ask(&client, &remote, self.kinds).await;
        }
    }
}

async fn ask(client: &Client, remote: &Remote, kinds: Vec<ApiResource>) -> Unanswered {
    let mut unanswered = Unanswered::default();
    for kind in kinds {
        match may_change(client, &kind).await {
            Ok(may) => note(remote, &kind, may),
            Err(failure) => {
                unanswered.kinds.push(kind);
                unanswered.why = failure.into();
            }
        }
    }
    unanswered
}

async fn may_change(client: &Client, kind: &ApiResource) -> Result<bool, Failure> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(kind.group.clone()),
                resource: Some(kind.plural.clone()),
                verb: Some("patch".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = match tokio::time::timeout(ANSWER_MAX, api.create(&params, &review)).await {
        Ok(answer) => answer?,
        Err(_elapsed) => return Err(Failure::passing("no answer")),
    };
    let status = answer
        .status
        .ok_or_else(|| Failure::passing("the answer says nothing"))?;
    match status.evaluation_error {
        // Why no refusal: the authorizer could not be asked, perhaps only for a moment.
        Some(error) if !status.allowed && !error.is_empty() => Err(Failure::passing(error)),
        Some(_) | None => Ok(status.allowed),
    }
}

fn note(remote: &Remote, kind: &ApiResource, may: bool) {
    if !remote.set_changeable(kind, may) {
        return;
    }
    if may {
        tracing::debug!(cluster = %remote.name, kind = kind.kind, "jobs there may be patched");
        return;
    }
    tracing::warn!(
        cluster = %remote.name,
        "the account of this manager may not patch {plural} there, so they are sent without finalizer {finalizer}: how one ended \
         is lost if it is deleted before that was seen here; let the account patch {plural} (API group \"{group}\") in all \
         namespaces of the worker, or run \"roadstead cluster join\" for this cluster again",
        plural = kind.plural,
        group = kind.group,
        finalizer = finalizers::OUTCOME,
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use jiff::Timestamp;
    use kube::client::Body;
    use roadstead_core::cluster::link::Link;
    use roadstead_core::lease::{Grant, Moment, Terms};
    use serde_json::{Value, json};

    use super::*;

    /// An API server that gives these answers in turn; `None` stands for none at all.
    fn answering(answers: impl IntoIterator<Item = Option<(u16, Value)>>) -> Client {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        let answers = Arc::new(Mutex::new(answers));
        let service = tower::service_fn(move |_: Request<Body>| {
            let next = answers.lock().unwrap().pop().unwrap();
            async move {
                let Some((code, body)) = next else {
                    return std::future::pending().await;
                };
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "ns")
    }

    fn review(status: Value) -> (u16, Value) {
        let kind = "SelfSubjectAccessReview";
        let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {}});
        review["status"] = status;
        (201, review)
    }

    /// Spec: safety 3.7, F25
    #[tokio::test(start_paused = true)]
    async fn no_answer_is_no_refusal_and_is_asked_for_again() {
        let kinds = &roadstead_jobs::registry()[..1];
        let terms = Terms::of(Duration::from_mins(10));
        let remote = Arc::new(Remote::new(
            "east".into(),
            (kinds, &Arc::default()),
            Link::new(Timestamp::UNIX_EPOCH, Grant::new(Moment::default(), terms)),
        ));
        let jobs = remote.jobs[0].resource.clone();
        let busy = json!({"kind": "Status", "code": 503, "message": "busy", "reason": "ServiceUnavailable"});
        let client = answering([
            Some(review(json!({"allowed": true}))),
            None,
            Some((503, busy)),
            Some(review(
                json!({"allowed": false, "evaluationError": "the webhook does not answer"}),
            )),
            Some(review(json!({"allowed": false}))),
        ]);
        assert!(!learn(&client, &remote).await.exist());
        assert!(remote.may_change(&jobs));
        let unanswered = learn(&client, &remote).await;
        assert!(unanswered.exist());
        assert!(remote.may_change(&jobs), "nobody has said otherwise");
        let until_answered = unanswered.learn(client, remote.clone());
        let minute = Duration::from_mins(1);
        assert!(tokio::time::timeout(minute, until_answered).await.is_ok());
        assert!(!remote.may_change(&jobs));
    }
}
