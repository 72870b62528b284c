//! The `/metrics` page over a registry that is filled once at start.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A registry that is complete: rooms register their metrics before the server starts, and only count afterwards.
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

    /// All metrics in the `OpenMetrics` text format.
    ///
    /// # Errors
    /// When a collector fails to print itself.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(with_infinity(&text))
    }

    /// A router that answers `GET /metrics`.
    pub fn router(&self) -> Router {
        let metrics = self.clone();
        Router::new().route("/metrics", get(move || async move { metrics.page() }))
    }

    fn page(&self) -> Response {
        match self.render() {
            Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
            Err(error) => {
                tracing::error!(%error, "metrics could not be printed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// The page with infinite values as the format spells them. Why: the library prints what Rust prints, `inf`.
fn with_infinity(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for line in page.split_inclusive('\n') {
        let (sample, value) = match line.trim_end().rsplit_once(' ') {
            Some((sample, value)) if !line.starts_with('#') => (sample, value),
            Some(_) | None => (line, ""),
        };
        let spelled = match value {
            "inf" => "+Inf",
            "-inf" => "-Inf",
            _ => {
                text.push_str(line);
                continue;
            }
        };
        text.push_str(sample);
        text.push(' ');
        text.push_str(spelled);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    use super::*;

    /// Spec: admission-engine B232.
    #[test]
    fn infinite_values_are_spelled_as_the_format_wants() {
        let page = "# HELP a up to inf\na{b=\"x inf\"} inf\nc -inf\nd 1.5\ne NaN\n# EOF\n";
        let text = with_infinity(page);
        assert_eq!(
            text,
            "# HELP a up to inf\na{b=\"x inf\"} +Inf\nc -Inf\nd 1.5\ne NaN\n# EOF\n"
        );
    }

    #[tokio::test]
    async fn the_page_shows_what_was_counted_after_start() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("kueue_admitted_workloads", "Admitted workloads", counter.clone());
        let metrics = Metrics::new(registry, "manager", "1.2.3");
        counter.inc_by(3);
        let request = http::Request::get("/metrics")
            .body(axum::body::Body::empty())
            .unwrap();
        let response = metrics.router().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("kueue_admitted_workloads_total 3\n"), "{text}");
        assert!(
            text.contains("roadstead_build_info{component=\"manager\",version=\"1.2.3\"} 1"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
