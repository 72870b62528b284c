use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::CertificateDer;
use tower::ServiceExt as _;

use super::*;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn client(&self, name: &str) -> PeerCertificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        PeerCertificates(chain.into())
    }

    fn published(&self) -> BTreeMap<String, String> {
        let entries = [
            ("requestheader-client-ca-file", self.0.pem()),
            ("requestheader-allowed-names", r#"["front-proxy"]"#.to_owned()),
            (
                "requestheader-username-headers",
                r#"["X-Remote-User"]"#.to_owned(),
            ),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#.to_owned()),
            (
                "requestheader-extra-headers-prefix",
                r#"["X-Remote-Extra-"]"#.to_owned(),
            ),
        ];
        entries.map(|(key, value)| (key.to_owned(), value)).into()
    }
}

/// A guard before one page. It knows the token `good` of bob; alice and bob may get `/page`; it counts the reviews.
struct Site {
    guard: Arc<Guard>,
    asked: Arc<AtomicUsize>,
}

impl Site {
    fn new() -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let (tokens, accesses) = (asked.clone(), asked.clone());
        let guard = Guard::new(Reviews {
            token: Box::new(move |token| {
                tokens.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    match token.reveal() {
                        "good" => Ok(Some(Caller {
                            user: "bob".to_owned(),
                            ..Caller::default()
                        })),
                        "lost" => Err(NotAsked),
                        _ => Ok(None),
                    }
                })
            }),
            access: Box::new(move |caller, question| {
                accesses.fetch_add(1, Ordering::SeqCst);
                let page = Question::Path {
                    verb: "get".to_owned(),
                    path: "/page".to_owned(),
                };
                let known = caller.groups.contains("system:authenticated");
                let allowed = known && ["alice", "bob"].contains(&caller.user.as_str()) && question == page;
                Box::pin(async move {
                    Ok(if allowed {
                        Verdict::Allowed
                    } else {
                        Verdict::Denied("no rule".to_owned())
                    })
                })
            }),
        });
        Self { guard, asked }
    }

    async fn get(
        &self,
        path: &str,
        peer: Option<PeerCertificates>,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let page = answering(|asked| Box::pin(async move { Reply::json(&asked.path) }));
        let router = self.guard.protect(page, Question::of_path);
        let mut request = http::Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let response = router.oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 12).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

const ALICE: &[(&str, &str)] = &[("X-Remote-User", "alice"), ("X-Remote-Group", "team")];
const BEARER: &[(&str, &str)] = &[("Authorization", "Bearer good")];

#[tokio::test]
async fn nobody_is_anonymous() {
    let site = Site::new();
    for headers in [
        &[][..],
        &[("Authorization", "Basic Z29vZA==")],
        &[("Authorization", "Bearer ")],
    ] {
        let (code, body) = site.get("/page", None, headers).await;
        assert_eq!(code, 401, "{body}");
        assert!(
            body.contains(r#""kind":"Status""#) && body.contains(r#""reason":"Unauthorized""#),
            "{body}"
        );
    }
    assert_eq!(site.asked(), 0);
}

#[tokio::test]
async fn a_token_is_reviewed_and_its_owner_may_what_the_api_server_allows() {
    let site = Site::new();
    assert_eq!(
        site.get("/page", None, BEARER).await,
        (200, "\"/page\"".to_owned())
    );
    let (code, body) = site.get("/other", None, BEARER).await;
    assert_eq!(code, 403);
    assert!(
        body.contains(r#"forbidden: User \"bob\" cannot get path \"/other\": no rule"#),
        "{body}"
    );
    assert_eq!(
        site.get("/page", None, &[("Authorization", "bearer bad")])
            .await
            .0,
        401
    );
    let (code, body) = site.get("/page", None, &[("Authorization", "Bearer lost")]).await;
    assert_eq!(code, 503, "{body}");
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_for_a_moment() {
    let site = Site::new();
    for _ in 0..3 {
        assert_eq!(site.get("/page", None, BEARER).await.0, 200);
    }
    assert_eq!(site.asked(), 2);
    tokio::time::advance(KEPT_MAX_AGE).await;
    assert_eq!(site.get("/page", None, BEARER).await.0, 200);
    assert_eq!(site.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_limited_and_makes_room_with_age() {
    let kept = Kept::default();
    for n in 0..KEPT_MAX + 5 {
        kept.put(n, n);
    }
    assert_eq!((kept.get(&0), kept.get(&KEPT_MAX)), (Some(0), None));
    tokio::time::advance(KEPT_MAX_AGE).await;
    kept.put(KEPT_MAX, 1);
    assert_eq!((kept.get(&0), kept.get(&KEPT_MAX)), (None, Some(1)));
}

#[tokio::test]
async fn the_front_proxy_is_believed_only_with_its_certificate_and_name() {
    let (site, authority) = (Site::new(), Authority::new());
    let proxy = authority.client("front-proxy");
    assert_eq!(site.get("/page", Some(proxy.clone()), ALICE).await.0, 401);
    site.guard
        .trust(FrontProxy::from_config_map(&authority.published()).unwrap());
    assert_eq!(site.get("/page", Some(proxy.clone()), ALICE).await.0, 200);
    let strangers = [
        None,
        Some(authority.client("somebody")),
        Some(Authority::new().client("front-proxy")),
    ];
    for stranger in strangers {
        assert_eq!(site.get("/page", stranger, ALICE).await.0, 401);
    }
    // A proxy that names no user is not taken as a user itself.
    assert_eq!(site.get("/page", Some(proxy.clone()), &[]).await.0, 401);
    let (code, body) = site.get("/page", Some(proxy), &[("X-Remote-User", "eve")]).await;
    assert!(code == 403 && body.contains(r#"User \"eve\""#), "{code} {body}");
}

#[tokio::test]
async fn an_empty_list_of_names_allows_every_name() {
    let (site, authority) = (Site::new(), Authority::new());
    let mut published = authority.published();
    published.insert("requestheader-allowed-names".to_owned(), "[]".to_owned());
    site.guard.trust(FrontProxy::from_config_map(&published).unwrap());
    let anyone = authority.client("somebody");
    assert_eq!(site.get("/page", Some(anyone), ALICE).await.0, 200);
}

#[test]
fn the_proxy_names_groups_and_extras() {
    let authority = Authority::new();
    let proxy = FrontProxy::from_config_map(&authority.published())
        .unwrap()
        .unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-remote-user", "alice"),
        ("x-remote-group", "b"),
        ("x-remote-group", "a"),
        ("x-remote-extra-example.com%2fscopes", "one"),
        ("x-remote-extra-example.com%2fscopes", "two"),
    ] {
        headers.append(name, value.parse().unwrap());
    }
    let caller = proxy.caller(&authority.client("front-proxy"), &headers).unwrap();
    assert_eq!(caller.user, "alice");
    assert_eq!(caller.groups.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(caller.extra["example.com/scopes"], ["one", "two"]);
}

#[test]
fn what_the_cluster_publishes_is_read_or_named() {
    assert!(FrontProxy::from_config_map(&BTreeMap::new()).unwrap().is_none());
    let mut published = Authority::new().published();
    published.insert("requestheader-group-headers".to_owned(), "x".to_owned());
    let error = FrontProxy::from_config_map(&published).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("entry requestheader-group-headers of")
    );
    published.insert(
        "requestheader-client-ca-file".to_owned(),
        "no certificate".to_owned(),
    );
    let error = FrontProxy::from_config_map(&published).unwrap_err();
    assert_eq!(error.entry, "requestheader-client-ca-file");
}

#[test]
fn refusals_use_the_words_of_the_api_server() {
    let mut question = Question::Resource {
        verb: "get".to_owned(),
        group: "visibility.kueue.x-k8s.io",
        version: "v1beta2".to_owned(),
        resource: "localqueues",
        subresource: "pendingworkloads",
        namespace: Some("team".to_owned()),
        name: "q".to_owned(),
    };
    assert_eq!(
        question.refusal("eve"),
        "localqueues.visibility.kueue.x-k8s.io \"q\" is forbidden: User \"eve\" cannot get resource \
         \"localqueues/pendingworkloads\" in API group \"visibility.kueue.x-k8s.io\" in the namespace \"team\""
    );
    if let Question::Resource { namespace, .. } = &mut question {
        *namespace = None;
    }
    assert!(question.refusal("eve").ends_with("at the cluster scope"));
}

#[test]
fn tokens_are_never_printed() {
    assert!(!format!("{:?}", Token("hush".to_owned())).contains("hush"));
}
