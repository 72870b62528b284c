use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::time::timeout;

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);
/// Long enough for loopback to deliver data.
const SILENCE: Duration = Duration::from_millis(200);

/// A server that sends back what it gets.
async fn echo() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (address, AbortOnDropHandle::new(server))
}

async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte]).await?;
    stream.read_u8().await
}

#[tokio::test]
async fn a_whole_link_carries_both_ways() {
    let (server, _echo) = echo().await;
    let link = Link::start(server).await.unwrap();
    let mut stream = TcpStream::connect(link.address()).await.unwrap();
    assert_eq!(timeout(DEADLINE, ask(&mut stream, 7)).await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn a_refusing_link_resets_open_and_new_connections_until_it_heals() {
    let (server, _echo) = echo().await;
    let link = Link::start(server).await.unwrap();
    let mut open = TcpStream::connect(link.address()).await.unwrap();
    timeout(DEADLINE, ask(&mut open, 1)).await.unwrap().unwrap();
    link.cut(Cut::Refuse);
    assert!(timeout(DEADLINE, open.read_u8()).await.unwrap().is_err());
    let mut new = TcpStream::connect(link.address()).await.unwrap();
    assert!(timeout(DEADLINE, ask(&mut new, 2)).await.unwrap().is_err());
    link.heal();
    let mut later = TcpStream::connect(link.address()).await.unwrap();
    assert_eq!(timeout(DEADLINE, ask(&mut later, 3)).await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn a_swallowing_link_delivers_after_it_heals() {
    let (server, _echo) = echo().await;
    let link = Link::start(server).await.unwrap();
    let mut open = TcpStream::connect(link.address()).await.unwrap();
    timeout(DEADLINE, ask(&mut open, 1)).await.unwrap().unwrap();
    link.cut(Cut::Swallow);
    let mut new = TcpStream::connect(link.address()).await.unwrap();
    for stream in [&mut open, &mut new] {
        assert!(
            timeout(SILENCE, ask(stream, 2)).await.is_err(),
            "nothing may come through"
        );
    }
    link.heal();
    for mut stream in [open, new] {
        assert_eq!(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap(), 2);
    }
}

#[tokio::test]
async fn a_link_that_swallows_answers_carries_requests_and_delivers_the_answers_after_it_heals() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let link = Link::start(listener.local_addr().unwrap()).await.unwrap();
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    let (mut server, _) = timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
    link.cut(Cut::Answers);
    client.write_all(&[3]).await.unwrap();
    assert_eq!(timeout(DEADLINE, server.read_u8()).await.unwrap().unwrap(), 3);
    server.write_all(&[4]).await.unwrap();
    assert!(timeout(SILENCE, client.read_u8()).await.is_err());
    link.heal();
    assert_eq!(timeout(DEADLINE, client.read_u8()).await.unwrap().unwrap(), 4);
}

#[tokio::test]
async fn dropping_a_link_closes_its_connections() {
    let (server, _echo) = echo().await;
    let link = Link::start(server).await.unwrap();
    let mut open = TcpStream::connect(link.address()).await.unwrap();
    timeout(DEADLINE, ask(&mut open, 1)).await.unwrap().unwrap();
    drop(link);
    assert!(timeout(DEADLINE, open.read_u8()).await.unwrap().is_err());
}

#[test]
fn a_watch_is_known_by_its_query() {
    let asks = |path: &str| events::is_asked_for(&Request::get(path).body(()).unwrap());
    assert!(asks("/api/v1/pods?watch=true") && asks("/api/v1/pods?limit=1&watch=1"));
    assert!(!asks("/api/v1/pods") && !asks("/api/v1/pods?watch=false&labelSelector=watch%3Dtrue"));
}

#[tokio::test]
async fn events_that_mention_a_text_are_left_out_however_they_are_cut() {
    let told =
        "{\"a\":\"first\"}\n{\"a\":\"hidden-1\"}\n{\"a\":\"hid\"}\n{\"a\":\"1-hidden\"}\n{\"a\":\"last\"}\n";
    let passed = "{\"a\":\"first\"}\n{\"a\":\"hid\"}\n{\"a\":\"last\"}\n";
    for size in [1, 2, 7, 20, told.len()] {
        let frames = told.as_bytes().chunks(size);
        let frames = frames.map(|part| Ok::<_, hyper::Error>(Frame::data(Bytes::copy_from_slice(part))));
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        let left_out = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let carried = events::without(body, "hidden", left_out).collect().await.unwrap();
        assert_eq!(carried.to_bytes(), passed, "in parts of {size}");
        assert_eq!(count.load(Ordering::Relaxed), 2, "in parts of {size}");
    }
}

/// A line may never end. Complete lines before it are passed on all the same.
#[tokio::test]
async fn an_event_is_passed_on_when_its_line_has_ended() {
    let line = Ok::<_, hyper::Error>(Frame::data(Bytes::from_static(b"{}\n{")));
    let body = StreamBody::new(stream::iter([line]).chain(stream::pending()));
    let mut carried = events::without(body, "hidden", || {});
    let first = timeout(DEADLINE, carried.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(first.into_data().unwrap(), "{}\n");
    assert!(timeout(SILENCE, carried.frame()).await.is_err());
}

#[tokio::test]
async fn a_silent_watch_neither_speaks_nor_ends() {
    let line = Ok::<_, hyper::Error>(Frame::data(Bytes::from_static(b"{}\n")));
    let mut carried = events::none(StreamBody::new(stream::iter([line])));
    assert!(timeout(SILENCE, carried.frame()).await.is_err());
}
