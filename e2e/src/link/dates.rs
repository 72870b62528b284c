//! Shifts the times in a server's answers, as if the cluster had a wrong clock.

use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use jiff::ToSpan as _;
use jiff::civil::DateTime;

use super::events::Carried;

/// A time to the second, as Kubernetes writes it; a following fraction or `Z` stays.
const TIME: &str = "%Y-%m-%dT%H:%M:%S";
/// Bytes of a time.
const LENGTH: usize = "2006-01-02T15:04:05".len();

/// The body with each time shifted by `seconds`. Its length stays the same.
///
/// Limit: a line is held until its end has come, however long it is. That is safe because the test runs the server itself.
pub(super) fn moved<B>(body: B, seconds: i64) -> Carried
where
    B: Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
{
    let moved = stream::unfold((Some(body), Vec::new()), move |(body, mut begun)| async move {
        let mut body = body?;
        loop {
            let data = match body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Some((Err(error), (Some(body), begun))),
                None if begun.is_empty() => return None,
                None => return Some((Ok(frame_of(begun, seconds)), (None, Vec::new()))),
            };
            begun.extend_from_slice(&data);
            // Why whole lines only: a time may be split between two frames.
            if let Some(end) = begun.iter().rposition(|byte| *byte == b'\n') {
                let rest = begun.split_off(end + 1);
                return Some((Ok(frame_of(begun, seconds)), (Some(body), rest)));
            }
        }
    });
    StreamBody::new(moved).boxed_unsync()
}

fn frame_of(mut text: Vec<u8>, seconds: i64) -> Frame<Bytes> {
    move_all(&mut text, seconds);
    Frame::data(text.into())
}

fn move_all(text: &mut [u8], seconds: i64) {
    let mut at = 0;
    while let Some(found) = text.get_mut(at..at + LENGTH) {
        match move_one(found, seconds) {
            Some(moved) => {
                found.copy_from_slice(moved.as_bytes());
                at += LENGTH;
            }
            None => at += 1,
        }
    }
}

/// The shifted time, if `text` is a time.
fn move_one(text: &[u8], seconds: i64) -> Option<String> {
    // Why first: almost no text is a time.
    if text.get(10) != Some(&b'T') {
        return None;
    }
    let time = DateTime::strptime(TIME, text).ok()?;
    let moved = time
        .checked_add(seconds.seconds())
        .ok()?
        .strftime(TIME)
        .to_string();
    (moved.len() == LENGTH).then_some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: safety F18
    #[tokio::test]
    async fn times_are_moved_wherever_frames_end_and_nothing_else_is() {
        let parts = [
            r#"{"renewTime":"2026-11-24T23:59:5"#,
            "9.123456Z\",\"name\":\"x-10T\"}\n{\"a\":\"2026-01-01T00:30:00Z\"",
            "}",
        ];
        let frames = stream::iter(parts.map(|part| Ok::<_, hyper::Error>(Frame::data(Bytes::from(part)))));
        let body = moved(StreamBody::new(frames), 3_600).collect().await.unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        let wanted = "{\"renewTime\":\"2026-11-25T00:59:59.123456Z\",\"name\":\"x-10T\"}\n{\"a\":\"2026-01-01T01:30:00Z\"}";
        assert_eq!(text, wanted);
    }
}
