//! Watches whose answer begins but lacks all or some of its events.

use futures::stream;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Bytes, Frame};

/// The body of an answer, as it goes on to the client.
pub(super) type Carried = UnsyncBoxBody<Bytes, hyper::Error>;

/// Whether the request is for a watch.
pub(super) fn is_asked_for<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    { query.split('&') }.any(|pair| ["watch=true", "watch=1"].contains(&pair))
}

/// Whether the body is a stream of events. The body of a refused watch is a single object.
pub(super) fn follow<B>(answer: &Response<B>) -> bool {
    answer.status().is_success()
}

/// A body without data and without an end. Why `events` is kept: otherwise the server would see that the client is gone.
pub(super) fn none<B>(events: B) -> Carried
where
    B: Body<Data = Bytes, Error = hyper::Error> + Send + 'static,
{
    let silence = stream::unfold(events, |events| async move {
        let _kept = events;
        std::future::pending().await
    });
    StreamBody::new(silence).boxed_unsync()
}

/// The events whose line does not contain `text`. `left_out` is called for each of the others.
///
/// Limit: a line is held until its end has come, however long it is. That is safe because the test runs the server itself.
pub(super) fn without<B>(
    events: B,
    text: &'static str,
    left_out: impl Fn() + Clone + Send + 'static,
) -> Carried
where
    B: Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
{
    let passed = stream::unfold((events, Vec::new()), move |(mut events, mut begun)| {
        let left_out = left_out.clone();
        async move {
            loop {
                let frame = match events.frame().await? {
                    Ok(frame) => frame,
                    Err(error) => return Some((Err(error), (events, begun))),
                };
                // Why: watches have no trailers.
                let Ok(data) = frame.into_data() else { continue };
                begun.extend_from_slice(&data);
                let passed = take_lines(&mut begun, text, &left_out);
                if !passed.is_empty() {
                    return Some((Ok(Frame::data(passed.into())), (events, begun)));
                }
            }
        }
    });
    StreamBody::new(passed).boxed_unsync()
}

/// Takes all complete lines from the front and returns those that do not contain the text. Why complete ones only: a frame may
/// end inside a line.
fn take_lines(begun: &mut Vec<u8>, text: &str, left_out: impl Fn()) -> Vec<u8> {
    let whole = { begun.iter() }
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let lines: Vec<u8> = begun.drain(..whole).collect();
    let mut passed = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if line.windows(text.len()).any(|part| part == text.as_bytes()) {
            left_out();
        } else {
            passed.extend_from_slice(line);
        }
    }
    passed
}
