use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn loopback() -> BindAddress {
    BindAddress::Listen {
        host: "127.0.0.1".into(),
        port: 0,
    }
}

async fn get_page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn port_zero_is_chosen_by_the_system_and_answers() {
    let listener = Listener::bind("test", &loopback()).await.unwrap().unwrap();
    let address = listener.local_addr();
    assert_ne!(address.port(), 0);
    let stop = CancellationToken::new();
    let router = Router::new().route("/a", get(|| async { "hello" }));
    let server = tokio::spawn(listener.serve(router, None, stop.clone()));
    let page = get_page(address, "/a").await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.ends_with("hello"),
        "{page}"
    );
    stop.cancel();
    server.await.unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is still open after the stop"
    );
}

#[tokio::test]
async fn an_empty_host_answers_on_loopback() {
    let listener = Listener::bind("test", &BindAddress::all(0))
        .await
        .unwrap()
        .unwrap();
    let port = listener.local_addr().port();
    let stop = CancellationToken::new();
    let server = tokio::spawn(listener.serve(Router::new(), None, stop.clone()));
    assert!(
        get_page((Ipv4Addr::LOCALHOST, port).into(), "/")
            .await
            .starts_with("HTTP/1.1 404")
    );
    stop.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn a_listener_can_be_switched_off() {
    assert!(
        Listener::bind("test", &BindAddress::Disabled)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_it() {
    let first = Listener::bind("first", &loopback()).await.unwrap().unwrap();
    let address = BindAddress::Listen {
        host: "127.0.0.1".into(),
        port: first.local_addr().port(),
    };
    let error = Listener::bind("webhook", &address).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("webhook cannot listen on {}", first.local_addr())
    );
}

#[tokio::test]
async fn a_running_request_is_finished_after_the_stop() {
    let listener = Listener::bind("test", &loopback()).await.unwrap().unwrap();
    let address = listener.local_addr();
    let stop = CancellationToken::new();
    let inside = stop.clone();
    let slow = get(move || async move {
        inside.cancel();
        tokio::task::yield_now().await;
        "done"
    });
    let server = tokio::spawn(listener.serve(Router::new().route("/slow", slow), None, stop));
    assert!(get_page(address, "/slow").await.ends_with("done"));
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_cut_off() {
    let router = Router::new()
        .route("/stuck", get(std::future::pending::<()>))
        .layer(from_fn(limit_time));
    let request = Request::get("/stuck").body(axum::body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
}
