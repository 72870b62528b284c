//! The two text formats of the page: Prometheus 0.0.4 and `OpenMetrics` 1.0.0, and which of them a client asks for.
//!
//! Invariant: a strict parser can read the page in either format, and a sample has the same name and value in both.
//! *Source*: `spec/admission-engine.md 8`.

use axum::http::{HeaderMap, header};

/// The format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4, which the reference serves.
    Text,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

/// The quality of a media type without a `q`, in thousandths.
const FULL_QUALITY: u32 = 1_000;

impl Format {
    /// The format that the client prefers; the text format if it accepts neither.
    pub(super) fn asked(headers: &HeaderMap) -> Self {
        let wishes = headers.get_all(header::ACCEPT).iter();
        let wishes = wishes.filter_map(|value| value.to_str().ok());
        let mut best = (0, Self::Text);
        for wish in wishes.flat_map(|value| value.split(',')) {
            if let Some((quality, format)) = served(wish)
                && quality > best.0
            {
                best = (quality, format);
            }
        }
        best.1
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The quality of one media type, in thousandths, and its format; `None` when it is not served.
fn served(wish: &str) -> Option<(u32, Format)> {
    let mut parts = wish.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let (mut quality, mut version) = (FULL_QUALITY, None);
    for part in parts {
        match part.split_once('=') {
            Some(("q", text)) => quality = thousandths(text),
            Some(("version", text)) => version = Some(text.trim_matches('"')),
            Some(_) | None => {}
        }
    }
    let format = match (media.as_str(), version) {
        ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => Format::OpenMetrics,
        ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Format::Text,
        _ => return None,
    };
    Some((quality, format))
}

fn thousandths(quality: &str) -> u32 {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    let part: u32 = digits.parse().unwrap_or(0);
    let whole: u32 = whole.parse().unwrap_or(0);
    whole
        .saturating_mul(FULL_QUALITY)
        .saturating_add(part)
        .min(FULL_QUALITY)
}

/// The library's page as strict `OpenMetrics`. Why: the library prints infinite values as Rust does, `inf`.
pub(super) fn open_metrics(page: &str) -> String {
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

/// An `OpenMetrics` page in the text format 0.0.4: counters and infos have their suffix in the family's name, and families of
/// unknown type are counters again. Bounds of buckets are printed as Go prints them (`160`, not `160.0`).
pub(super) fn text(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" if name.ends_with("_total") => ("", "counter"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, words)) = help.take() {
                push_line(&mut text, &["# HELP ", name, ending, " ", words]);
            }
            push_line(&mut text, &["# TYPE ", name, ending, " ", kind]);
        } else if !line.starts_with('#') {
            push_line(&mut text, &[&with_short_bound(line)]);
        }
    }
    text
}

fn push_line(text: &mut String, parts: &[&str]) {
    text.extend(parts.iter().copied());
    text.push('\n');
}

/// Wire: dashboards and rules written for the reference select buckets by `le="160"`.
fn with_short_bound(line: &str) -> std::borrow::Cow<'_, str> {
    const BOUND: &str = "_bucket{le=\"";
    let bound = line.find(BOUND).map(|at| at + BOUND.len());
    let end = bound.and_then(|start| Some(start + line.get(start..)?.find('"')?));
    match end {
        Some(end) if line.get(..end).is_some_and(|head| head.ends_with(".0")) => {
            let (head, tail) = line.split_at(end);
            format!("{}{tail}", head.trim_end_matches(".0")).into()
        }
        Some(_) | None => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn asked(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for wish in accept {
            headers.append(header::ACCEPT, HeaderValue::from_str(wish).unwrap());
        }
        Format::asked(&headers)
    }

    /// Spec: admission-engine 8
    #[test]
    fn the_client_gets_the_format_it_likes_best_and_text_without_a_wish() {
        const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                                  text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, wanted) in [
            (&[][..], Format::Text),
            (&["*/*"], Format::Text),
            (&["text/plain"], Format::Text),
            (&["application/json"], Format::Text),
            (&["text/html, */*;q=0.8"], Format::Text),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (
                &["application/openmetrics-text; version=\"1.0.0\""],
                Format::OpenMetrics,
            ),
            (
                &["application/openmetrics-text; version=9.0.0, */*;q=0.1"],
                Format::Text,
            ),
            (&[PROMETHEUS], Format::OpenMetrics),
            (
                &["application/openmetrics-text;q=0.2, text/plain;q=0.75"],
                Format::Text,
            ),
            (
                &["text/plain;q=0.2", "application/openmetrics-text"],
                Format::OpenMetrics,
            ),
            (&["application/openmetrics-text;q=0"], Format::Text),
        ] {
            assert_eq!(asked(accept), wanted, "{accept:?}");
        }
    }

    /// Spec: admission-engine B232.
    #[test]
    fn infinite_values_are_spelled_as_the_format_wants() {
        let page = "# HELP a up to inf\na{b=\"x inf\"} inf\nc -inf\nd 1.5\ne NaN\n# EOF\n";
        assert_eq!(
            open_metrics(page),
            "# HELP a up to inf\na{b=\"x inf\"} +Inf\nc -Inf\nd 1.5\ne NaN\n# EOF\n"
        );
    }

    /// Spec: admission-engine 8
    #[test]
    fn families_of_the_text_format_carry_the_names_of_their_samples() {
        let page = "# HELP a Some.\n# TYPE a counter\na_total{x=\"1\"} 3\n\
                    # HELP b_total Others.\n# TYPE b_total unknown\nb_total 2\n\
                    # HELP c Build.\n# TYPE c info\nc_info{v=\"1.0\"} 1\n\
                    # HELP d Time.\n# TYPE d histogram\nd_sum 1.0\nd_count 1\nd_bucket{le=\"160.0\",q=\"5.0\"} 1\nd_bucket{le=\"0.5\"} 0\n\
                    d_bucket{le=\"+Inf\"} 1\n# EOF\n";
        assert_eq!(
            text(page),
            "# HELP a_total Some.\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\
             # HELP b_total Others.\n# TYPE b_total counter\nb_total 2\n\
             # HELP c_info Build.\n# TYPE c_info gauge\nc_info{v=\"1.0\"} 1\n\
             # HELP d Time.\n# TYPE d histogram\nd_sum 1.0\nd_count 1\nd_bucket{le=\"160\",q=\"5.0\"} 1\nd_bucket{le=\"0.5\"} 0\n\
             d_bucket{le=\"+Inf\"} 1\n"
        );
    }
}
