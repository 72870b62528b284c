//! Lifetimes of tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Method;

use super::*;
use crate::clock::Clock;
use crate::server::Options;
use crate::server::tests::send;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A server with a clock that is set from outside, and an account.
async fn server() -> (Server, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(1_000));
    let seconds = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_second(seconds.load(Ordering::SeqCst)).unwrap());
    let server = Server::new(Options::new(clock, 1));
    make_account(&server).await;
    (server, now)
}

async fn make_account(server: &Server) {
    let account = json!({"metadata": {"name": "bot"}});
    send(server, Method::POST, ACCOUNTS, account).await;
}

async fn mint(server: &Server, seconds: i64) -> (u16, Value) {
    let request = json!({"spec": {"expirationSeconds": seconds}});
    send(server, Method::POST, &format!("{ACCOUNTS}/bot/token"), request).await
}

fn bearer(answer: &Value) -> String {
    format!("Bearer {}", answer["status"]["token"].as_str().unwrap())
}

#[tokio::test]
async fn a_requested_token_is_good_until_it_expires() {
    let (server, now) = server().await;
    let (code, answer) = mint(&server, 600).await;
    assert_eq!(code, 201);
    assert_eq!(answer["status"]["expirationTimestamp"], "1970-01-01T00:26:40Z");
    let bearer = bearer(&answer);
    let user = server.authenticate(&bearer).unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:bot");
    assert!(user.groups.contains(&"system:serviceaccounts:default".to_owned()));
    now.store(1_599, Ordering::SeqCst);
    assert!(server.authenticate(&bearer).is_some());
    now.store(1_600, Ordering::SeqCst);
    assert_eq!(server.authenticate(&bearer), None);
}

#[tokio::test]
async fn a_token_ends_with_its_account_even_if_one_of_the_same_name_follows() {
    let (server, _now) = server().await;
    let bearer = bearer(&mint(&server, 600).await.1);
    send(&server, Method::DELETE, &format!("{ACCOUNTS}/bot"), Value::Null).await;
    assert_eq!(server.authenticate(&bearer), None);
    make_account(&server).await;
    assert_eq!(server.authenticate(&bearer), None);
}

#[tokio::test]
async fn a_life_that_is_too_short_or_too_long_is_refused() {
    let (server, _now) = server().await;
    assert_eq!(mint(&server, 599).await.0, 422);
    assert_eq!(mint(&server, (1 << 32) + 1).await.0, 422);
}

#[tokio::test]
async fn an_issued_token_does_not_expire_and_an_unknown_one_is_nobody() {
    let (server, now) = server().await;
    let bearer = format!("Bearer {}", server.issue_token(User::admin()));
    now.store(1_000_000_000, Ordering::SeqCst);
    assert_eq!(server.authenticate(&bearer), Some(User::admin()));
    assert_eq!(server.authenticate("Bearer nonsense"), None);
    assert_eq!(server.authenticate("Basic nonsense"), None);
    assert_eq!(server.authenticate(""), Some(User::anonymous()));
}
