//! The `/metrics` page of a registry that is filled once at start.

mod format;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use format::Format;

/// A complete registry: crates register their metrics before the server starts, and only count afterwards.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
}

impl Metrics {
    /// Closes the registry and adds `roadstead_build_info{version, component}`.
    pub fn new(mut registry: Registry, component: &'static str, version: &'static str) -> Self {
        let build = Info::new(vec![("component", component), ("version", version)]);
        registry.register("roadstead_build", "Version of the running process", build);
        Self {
            registry: Arc::new(registry),
        }
    }

    /// All metrics in this format.
    ///
    /// # Errors
    /// When a collector fails to print itself.
    pub fn render(&self, format: Format) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        encode(&mut page, &self.registry)?;
        let page = format::open_metrics(&page);
        Ok(match format {
            Format::OpenMetrics => page,
            Format::Text => format::text(&page),
        })
    }

    /// A router that answers `GET /metrics` in the format that the client asks for.
    pub fn router(&self) -> Router {
        let metrics = self.clone();
        let answer = move |headers: HeaderMap| async move { metrics.page(Format::asked(&headers)) };
        Router::new().route("/metrics", get(answer))
    }

    fn page(&self, format: Format) -> Response {
        match self.render(format) {
            Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
            Err(error) => {
                tracing::error!(%error, "metrics could not be printed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    use super::*;

    async fn ask(accept: Option<&str>) -> (String, String) {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("kueue_admitted_workloads", "Admitted workloads", counter.clone());
        let metrics = Metrics::new(registry, "manager", "1.2.3");
        counter.inc_by(3);
        let mut request = http::Request::get("/metrics");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = metrics.router().oneshot(request).await.unwrap();
        let content = response.headers()["content-type"].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (content, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Spec: admission-engine 8
    #[tokio::test]
    async fn the_page_shows_what_was_counted_after_start_in_the_format_asked_for() {
        let build = "roadstead_build_info{component=\"manager\",version=\"1.2.3\"} 1\n";
        let (content, text) = ask(None).await;
        assert_eq!(content, "text/plain; version=0.0.4; charset=utf-8");
        for part in [
            "# TYPE kueue_admitted_workloads_total counter\nkueue_admitted_workloads_total 3\n",
            build,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("# EOF"), "{text}");
        openmetrics_parser::prometheus::parse_prometheus(&text).unwrap();

        let (content, text) = ask(Some("application/openmetrics-text;version=1.0.0")).await;
        assert_eq!(
            content,
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        );
        for part in [
            "# TYPE kueue_admitted_workloads counter\nkueue_admitted_workloads_total 3\n",
            build,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        openmetrics_parser::openmetrics::parse_openmetrics(&text).unwrap();
    }
}
