//! Plays the dashboards of Ray clusters, as far as the Ray operator asks them for the state of jobs and services.
//!
//! The operator calls a dashboard by the name of a Service, which no name server here knows. So this is the operator's HTTP
//! proxy, and all its calls come here. Its calls to the API server use HTTPS and do not go through the proxy.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

const JOBS: &str = "/api/jobs/";
/// Path of the applications that a cluster serves.
const SERVED: &str = "/api/serve/applications/";
/// Path of the health of a cluster's request proxy.
const WELL: &str = "/-/healthz";
/// How long a job without a number in its name runs.
const USUAL: Duration = Duration::from_secs(1);

/// A played dashboard of Ray clusters. A job runs from the first call for as many seconds as the number at the end of its name
/// (`train-30`), and then has succeeded. Applications are served at once. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Dashboard {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Dashboard {
    /// Listens on loopback.
    ///
    /// *Errors*: no port is free.
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let jobs = Arc::new(Jobs::default());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let jobs = jobs.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let answer = jobs.answer(request.method(), request.uri().path(), Instant::now());
                    async move { Ok::<_, Infallible>(answer) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok(Self {
            address,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// Its URL as a proxy.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The jobs that the operator asked for, and the time of the first call.
#[derive(Debug, Default)]
struct Jobs(Mutex<BTreeMap<String, Instant>>);

impl Jobs {
    fn answer(&self, method: &Method, path: &str, now: Instant) -> Response<Full<Bytes>> {
        let job = path.strip_prefix(JOBS).filter(|job| !job.is_empty());
        let body = match (method.as_str(), job) {
            ("GET", Some(job)) => Some(self.state(job, now)),
            ("POST", Some(job)) if job.ends_with("/stop") => Some(json!({"stopped": true})),
            ("GET" | "PUT", None) if path == SERVED => {
                let served =
                    json!({"name": "app", "status": "RUNNING", "message": "played", "deployments": {}});
                Some(json!({"applications": {"app": served}}))
            }
            ("GET", None) if path == WELL => Some(json!("success")),
            _ => None,
        };
        let code = if body.is_some() {
            StatusCode::OK
        } else {
            StatusCode::NOT_FOUND
        };
        let mut response = Response::new(Full::from(body.unwrap_or_default().to_string()));
        *response.status_mut() = code;
        response
    }

    fn state(&self, job: &str, now: Instant) -> Value {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = *jobs.entry(job.to_owned()).or_insert(now);
        let ended = now.duration_since(began) >= length(job);
        let status = if ended { "SUCCEEDED" } else { "RUNNING" };
        json!({"job_id": job, "submission_id": job, "status": status, "message": "played"})
    }
}

fn length(job: &str) -> Duration {
    let number = job.rsplit('-').next().and_then(|end| end.parse().ok());
    number.map_or(USUAL, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_job_runs_as_long_as_its_name_says() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        let asked = async |path: &str, secs: u64| {
            let answer = jobs.answer(&Method::GET, path, now + Duration::from_secs(secs));
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<Value>(&body).unwrap()["status"].clone()
        };
        assert_eq!(asked("/api/jobs/train-30", 5).await, "RUNNING");
        assert_eq!(asked("/api/jobs/train-30", 34).await, "RUNNING");
        assert_eq!(asked("/api/jobs/train-30", 35).await, "SUCCEEDED");
        assert_eq!(asked("/api/jobs/train", 0).await, "RUNNING");
        assert_eq!(asked("/api/jobs/train", 1).await, "SUCCEEDED");
        for (path, code) in [
            (JOBS, StatusCode::NOT_FOUND),
            (SERVED, StatusCode::OK),
            (WELL, StatusCode::OK),
        ] {
            assert_eq!(jobs.answer(&Method::GET, path, now).status(), code, "{path}");
        }
    }
}
