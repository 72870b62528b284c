//! The table of good and bad kubeconfigs.

use std::fmt::Write as _;

use base64::Engine as _;
use roadstead_core::cluster::Reason;
use roadstead_kubeio::connect::{Credential, Endpoint};
use secrecy::ExposeSecret as _;

use super::address::{Forbidden, judge, judge_resolved};
use super::{BYTES_MAX, Refusal, Rules, check};

const REMOTE_ONLY: Rules = Rules {
    allow_loopback: false,
};
const ON_THIS_MACHINE: Rules = Rules { allow_loopback: true };
const CANARY: &str = "canary-s3cret";

fn b64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn ca() -> String {
    b64("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
}

fn key() -> String {
    b64("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
}

/// A kubeconfig with one entry of each kind, given as flow mappings.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    )
}

fn cluster(extra: &str) -> String {
    let ca = ca();
    kubeconfig(
        &format!("server: \"https://k.example:6443\", certificate-authority-data: {ca}{extra}"),
        "token: t",
    )
}

fn server(url: &str) -> String {
    let ca = ca();
    kubeconfig(
        &format!(
            "server: {}, certificate-authority-data: {ca}",
            serde_json::Value::from(url)
        ),
        "token: t",
    )
}

fn user(user: &str) -> String {
    let ca = ca();
    kubeconfig(
        &format!("server: \"https://k.example\", certificate-authority-data: {ca}"),
        user,
    )
}

fn refused(text: &str) -> Refusal {
    let refusal = check(text.as_bytes(), &REMOTE_ONLY).expect_err(text);
    assert_eq!(refusal.reason, Reason::InsecureKubeConfig);
    assert!(!refusal.message.contains(CANARY), "{refusal}");
    assert!(!refusal.message.contains('\n'), "{refusal}");
    refusal
}

fn accepted(text: &str) -> Endpoint {
    check(text.as_bytes(), &REMOTE_ONLY).expect(text)
}

fn check_messages(table: &[(String, &str)]) {
    for (text, message) in table {
        assert_eq!(refused(text).message, *message, "{text}");
    }
}

/// Spec: multikueue 2.3, 11.10, 11.12; safety 2 W11
#[test]
fn what_the_reference_refuses_is_refused_in_its_words() {
    check_messages(&[
        (
            user("token: t, tokenFile: /etc/passwd"),
            "tokenFile is not allowed",
        ),
        (
            cluster(", insecure-skip-tls-verify: true"),
            "insecure TLS verification is not allowed for cluster c",
        ),
        (
            cluster(", insecure-skip-tls-verify: yes"),
            "insecure TLS verification is not allowed for cluster c",
        ),
        (
            cluster(", insecure-skip-tls-verify: \"true\""),
            "insecure TLS verification is not allowed for cluster c",
        ),
        (
            cluster(", certificate-authority: /etc/ca.crt"),
            "certificate-authority file paths are not allowed, use certificate-authority-data for cluster c",
        ),
        (kubeconfig("", "token: t"), "server URL is required for cluster c"),
        (server(""), "server URL is required for cluster c"),
        (server("https://exa_mple.com"), "untrusted server endpoint"),
        (server("k.example:6443"), "untrusted server endpoint"),
        (server("10.0.0.1:6443"), "untrusted server endpoint"),
        (server("k.example"), "untrusted server endpoint"),
        (server("https://"), "untrusted server endpoint"),
        (server("https://-bad.example"), "untrusted server endpoint"),
        (server("https://a..b"), "untrusted server endpoint"),
        (server("ftp://k.example"), "untrusted server endpoint"),
        (server("file:///etc/passwd"), "untrusted server endpoint"),
        (server("unix:///run/x.sock"), "untrusted server endpoint"),
        (server("https:\\\\k.example"), "untrusted server endpoint"),
        (server("https://k.exa\tmple"), "untrusted server endpoint"),
        (server(" https://k.example"), "untrusted server endpoint"),
        (server("https://k.example:99999"), "untrusted server endpoint"),
        (
            user("username: admin, password: canary-s3cret"),
            "basic auth is not allowed",
        ),
        (
            user("token: t, password: canary-s3cret"),
            "basic auth is not allowed",
        ),
        (user("username: admin, token: t"), "basic auth is not allowed"),
        (
            user("exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [canary-s3cret]}"),
            "exec plugins are not allowed",
        ),
        (user("exec: {}"), "exec plugins are not allowed"),
        (
            user("auth-provider: {name: gcp, config: {access-token: canary-s3cret}}"),
            "auth providers are not allowed",
        ),
    ]);
}

/// Spec: safety 4 rule 4, safety 5 S2, S3, S4, S5
#[test]
fn what_the_reference_overlooks_is_refused_with_the_key_named() {
    check_messages(&[
        (
            server("http://k.example"),
            "server must start with https:// for cluster c",
        ),
        (
            server("https://canary-s3cret@k.example"),
            "user info in the server URL is not allowed for cluster c",
        ),
        (
            server("https://u:canary-s3cret@k.example"),
            "user info in the server URL is not allowed for cluster c",
        ),
        (
            server("https://@k.example"),
            "user info in the server URL is not allowed for cluster c",
        ),
        (
            server("https://k.example/?x=canary-s3cret"),
            "a query in the server URL is not allowed for cluster c",
        ),
        (
            server("https://k.example#canary-s3cret"),
            "a fragment in the server URL is not allowed for cluster c",
        ),
        (
            user("client-certificate: /etc/c.crt, client-key-data: x"),
            "client-certificate file paths are not allowed, use client-certificate-data for user u",
        ),
        (
            user("client-key: /etc/c.key, token: t"),
            "client-key file paths are not allowed, use client-key-data for user u",
        ),
        (
            cluster(", proxy-url: \"http://canary-s3cret@p:3128\""),
            "proxy-url is not allowed for cluster c",
        ),
        (
            cluster(", tls-server-name: other.example"),
            "tls-server-name is not allowed for cluster c",
        ),
        (
            user("token: t, as: system:admin"),
            "impersonation (as) is not allowed for user u",
        ),
        (
            user("token: t, as-uid: \"1\""),
            "impersonation (as-uid) is not allowed for user u",
        ),
        (
            user("token: t, as-groups: [system:masters]"),
            "impersonation (as-groups) is not allowed for user u",
        ),
        (
            user("token: t, as-user-extra: {a: [b]}"),
            "impersonation (as-user-extra) is not allowed for user u",
        ),
        (user("token: t, tokenfile: /x"), "unknown key tokenfile in user u"),
        (user("token: t, Exec: {command: x}"), "unknown key Exec in user u"),
        (
            user("token: t, act-as: canary-s3cret"),
            "unknown key act-as in user u",
        ),
        (
            cluster(", insecure-skip-verify: true"),
            "unknown key insecure-skip-verify in cluster c",
        ),
    ]);
}

/// Spec: safety 6
#[test]
fn credential_that_is_not_one_whole_is_refused() {
    let both = format!(
        "token: t, client-certificate-data: {}, client-key-data: {}",
        ca(),
        key()
    );
    check_messages(&[
        (
            user(&both),
            "token and client certificate together are not allowed, keep one for user u",
        ),
        (
            user(""),
            "token, or client-certificate-data with client-key-data, is required for user u",
        ),
        (
            user("token: \"\""),
            "token, or client-certificate-data with client-key-data, is required for user u",
        ),
        (
            user(&format!("client-certificate-data: {}", ca())),
            "client-key-data is required beside client-certificate-data for user u",
        ),
        (
            user(&format!("client-key-data: {}", key())),
            "client-certificate-data is required beside client-key-data for user u",
        ),
        (
            user(&format!(
                "client-certificate-data: \"not base64 canary-s3cret\", client-key-data: {}",
                key()
            )),
            "client-certificate-data is not a base64-encoded PEM certificate for user u",
        ),
        (
            user(&format!(
                "client-certificate-data: {}, client-key-data: {}",
                ca(),
                b64(CANARY)
            )),
            "client-key-data is not a base64-encoded PEM private key for user u",
        ),
        (
            user("token: \"canary-s3cret\\r\\nX-Remote-User: admin\""),
            "token holds characters that a header cannot carry for user u",
        ),
        (
            kubeconfig("server: \"https://k.example\"", "token: t"),
            "certificate-authority-data is required for cluster c",
        ),
        (
            kubeconfig(
                &format!(
                    "server: \"https://k.example\", certificate-authority-data: {}",
                    b64(CANARY)
                ),
                "token: t",
            ),
            "certificate-authority-data is not a base64-encoded PEM certificate for cluster c",
        ),
    ]);
}

/// Spec: safety 4 rule 4, safety 5 S4
#[test]
fn addresses_that_lead_to_metadata_services_are_always_refused() {
    for address in [
        "169.254.169.254",
        "169.254.0.1:6443",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
        "metadata.google.internal",
        "METADATA.google.internal",
    ] {
        let text = server(&format!("https://{address}"));
        for rules in [REMOTE_ONLY, ON_THIS_MACHINE] {
            let refusal = check(text.as_bytes(), &rules).expect_err(address);
            assert!(
                refusal
                    .message
                    .starts_with("server is a link-local or metadata address, which is not allowed"),
                "{address}: {refusal}"
            );
            assert_eq!(refusal.rule, "S4");
        }
    }
    for address in ["224.0.0.1", "255.255.255.255", "[ff02::1]"] {
        let refusal = refused(&server(&format!("https://{address}")));
        assert!(refusal.message.starts_with("server is a multicast"), "{refusal}");
    }
}

/// Spec: safety 4 rule 4
#[test]
fn loopback_is_refused_unless_allowed() {
    for address in [
        "127.0.0.1:6443",
        "127.8.9.10",
        "127.1",
        "2130706433",
        "0.0.0.0:6443",
        "[::1]:6443",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "localhost:6443",
        "LOCALHOST",
        "api.localhost",
        "localhost.localdomain",
    ] {
        let text = server(&format!("https://{address}"));
        let refusal = refused(&text);
        assert_eq!(
            refusal.message,
            "server is a loopback address, which is not allowed for cluster c: give the address at which the manager reaches it; where \
             the manager runs on the same machine, set multiKueue.allowLoopbackWorkers in its RoadsteadConfiguration",
            "{address}"
        );
        assert!(check(text.as_bytes(), &ON_THIS_MACHINE).is_ok(), "{address}");
    }
}

/// Spec: multikueue 11.12
#[test]
fn private_and_public_addresses_are_fine() {
    for address in [
        "10.0.0.1:6443",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "[fd12:3456::1]:6443",
        "8.8.8.8",
        "[2001:db8::1]",
        "k.example",
        "worker1-control-plane:6443",
        "K.Example:6443",
        "k.example/k8s/clusters/c-abc",
    ] {
        accepted(&server(&format!("https://{address}")));
    }
    assert_eq!(
        accepted(&server("https://K.Example:6443/")).server,
        "https://k.example:6443"
    );
    assert_eq!(
        accepted(&server("https://k.example/k8s/clusters/c-abc")).server,
        "https://k.example/k8s/clusters/c-abc"
    );
}

#[test]
fn every_resolved_address_can_be_judged() {
    let judge = |text: &str| judge(text.parse().unwrap(), &REMOTE_ONLY);
    assert_eq!(judge("127.0.0.1"), Err(Forbidden::Loopback));
    assert_eq!(judge("::"), Err(Forbidden::Loopback));
    assert_eq!(judge("169.254.1.1"), Err(Forbidden::LinkLocalOrMetadata));
    assert_eq!(judge("ff02::1"), Err(Forbidden::NotOneMachine));
    assert_eq!(judge("10.1.2.3"), Ok(()));
}

/// Spec: safety S4
#[tokio::test]
async fn what_a_name_resolves_to_may_be_refused_and_that_may_pass() {
    let text = server("https://k.example:6443");
    let endpoint = Endpoint {
        server: "https://localhost:6443".to_owned(),
        ..accepted(&text)
    };
    let refusal = judge_resolved(&endpoint, &REMOTE_ONLY).await.unwrap_err();
    let words = refusal.message.as_str();
    assert!(
        words.starts_with("server resolves to a loopback address ("),
        "{words}"
    );
    assert!(
        words.contains("which is not allowed: give the address"),
        "{words}"
    );
    assert!(refusal.may_pass);
    assert_eq!(judge_resolved(&endpoint, &ON_THIS_MACHINE).await, Ok(()));
    assert!(!refused(&server("https://localhost:6443")).may_pass);
}

/// Spec: safety 4 rule 4
#[test]
fn kubeconfigs_as_people_have_them_are_accepted() {
    let ca = ca();
    let many = format!(
        "apiVersion: v1\nkind: Config\npreferences: {{colors: true}}\nextensions: [{{name: a, extension: {{b: 1}}}}]\n\
         current-context: two\n\
         clusters:\n\
         - name: one\n  cluster: {{server: 'https://one.example', certificate-authority-data: {ca}, disable-compression: true}}\n\
         - name: two\n  cluster:\n    server: https://two.example:6443\n    certificate-authority-data: {ca}\n    insecure-skip-tls-verify: false\n    tls-server-name: \"\"\n    proxy-url:\n    extensions: [{{name: minikube.sigs.k8s.io, extension: {{provider: x}}}}]\n\
         - name: three\n  cluster: {{server: 'https://three.example'}}\n\
         users:\n\
         - name: a\n  user: {{token: other, as-groups: [], exec: null}}\n\
         - name: b\n  user:\n    token: \"12345\"\n    tokenFile: \"\"\n\
         - name: nobody\n  user: {{}}\n\
         contexts:\n\
         - name: one\n  context: {{cluster: one, user: a, namespace: team-a, extensions: []}}\n\
         - name: two\n  context: {{cluster: two, user: b}}\n"
    );
    let endpoint = accepted(&many);
    assert_eq!(endpoint.server, "https://two.example:6443");
    assert!(matches!(endpoint.credential, Credential::Token(token) if token.expose_secret() == "12345"));

    let pair = user(&format!(
        "client-certificate-data: {ca}, client-key-data: {}",
        key()
    ));
    assert!(matches!(
        accepted(&pair).credential,
        Credential::ClientCertificate { .. }
    ));
    let json = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "preferences": {},
        "clusters": [{"name": "c", "cluster": {"server": "https://k.example", "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": 17}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    accepted(&json.to_string());
}

/// Spec: safety 4 rule 4 ("every cluster and user entry in the file is checked")
#[test]
fn trap_in_an_entry_that_is_not_in_use_is_found() {
    let good = cluster("");
    accepted(&good);
    let users = good.replace("users: [", "users: [{name: trap, user: {exec: {command: sh}}}, ");
    assert_eq!(refused(&users).message, "exec plugins are not allowed");
    let clusters = good.replace(
        "clusters: [",
        "clusters: [{name: trap, cluster: {server: 'https://169.254.169.254'}}, ",
    );
    assert!(refused(&clusters).message.contains("for cluster trap"));
}

/// Spec: multikueue 2.3 ("in this order; first hit is reported")
#[test]
fn first_hit_follows_the_order_of_the_reference() {
    let mut text = "users: [{name: a, user: {auth-provider: {name: x}}}, {name: b, user: {exec: {}}}, \
                    {name: c, user: {username: x}}, {name: d, user: {tokenFile: x}}]\n\
                    clusters: [{name: a, cluster: {server: 'https://a_b'}}, {name: b, cluster: {}}, \
                    {name: c, cluster: {certificate-authority: x}}, {name: d, cluster: {insecure-skip-tls-verify: true}}]\n"
        .to_owned();
    for (message, mended) in [
        ("tokenFile is not allowed", "tokenFile: x"),
        (
            "insecure TLS verification is not allowed for cluster d",
            "insecure-skip-tls-verify: true",
        ),
        (
            "certificate-authority file paths are not allowed, use certificate-authority-data for cluster c",
            "certificate-authority: x",
        ),
        ("server URL is required for cluster b", ""),
        ("untrusted server endpoint", "https://a_b"),
        ("basic auth is not allowed", "username: x"),
        ("exec plugins are not allowed", "exec: {}"),
        ("auth providers are not allowed", "auth-provider: {name: x}"),
    ] {
        assert_eq!(refused(&text).message, message);
        text = match mended {
            "" => text.replace("cluster: {}", "cluster: {server: 'https://k.example'}"),
            "https://a_b" => text.replace(mended, "https://k.example"),
            "insecure-skip-tls-verify: true" | "certificate-authority: x" => {
                text.replace(mended, "server: 'https://k.example'")
            }
            _ => text.replace(mended, ""),
        };
    }
    assert_eq!(refused(&text).message, "current-context is required");
}

#[test]
fn broken_references_are_named() {
    let good = cluster("");
    check_messages(&[
        (String::new(), "current-context is required"),
        ("{}".to_owned(), "current-context is required"),
        (
            good.replace("current-context: x", "current-context: y"),
            "current-context names y, which contexts does not have",
        ),
        (
            good.replace("cluster: c, user: u", "cluster: d, user: u"),
            "the current context names cluster d, which clusters does not have",
        ),
        (
            good.replace("cluster: c, user: u", "cluster: c, user: v"),
            "the current context names user v, which users does not have",
        ),
    ]);
}

/// Spec: safety 5 S6
#[test]
fn text_that_is_no_plain_kubeconfig_is_refused_without_being_quoted() {
    let good = cluster("");
    let deep = format!("preferences: {}1{}\n", "[".repeat(200), "]".repeat(200));
    let mut bomb = "a: &a [x, x]\n".to_owned();
    for (next, last) in ('b'..='i').zip('a'..) {
        let _infallible = writeln!(bomb, "{next}: &{next} [*{last}, *{last}, *{last}, *{last}]");
    }
    for text in [
        "canary-s3cret",
        "[canary-s3cret]",
        "users: canary-s3cret",
        "users: [{user: {token: canary-s3cret}}]",
        "users: [{name: u, user: {token: [canary-s3cret]}}]",
        "users: [{name: u, user: {token: canary-s3cret, token: canary-s3cret}}]",
        "users: [{name: u, user: canary-s3cret}]",
        "{canary-s3cret",
        "a: b: canary-s3cret",
        "users: &u [{name: canary-s3cret}]",
        "users: *canary-s3cret",
        "users: [{name: u, user: {<<: {token: canary-s3cret}}}]",
        "users: !!python/object canary-s3cret",
        "kind: canary-s3cret",
        "apiVersion: canary-s3cret",
        &deep,
        &bomb,
        &format!("{good}---\n{good}"),
        &format!("{good}users: []\n"),
        &good.replace("users: [", "users: [{name: u, user: {}}, "),
    ] {
        let refusal = refused(text);
        assert!(
            refusal
                .message
                .starts_with("failed to parse kubeconfig(apiconfig): "),
            "{refusal} from {text}"
        );
    }
    let big = format!("{good}# {}", "x".repeat(BYTES_MAX));
    assert!(refused(&big).message.ends_with("larger than 256 KiB"));
    for junk in [&b"\xff\xfe\x00a"[..], &b"\x00\x01\x02"[..], &[0x80; 64][..]] {
        assert!(check(junk, &REMOTE_ONLY).is_err());
    }
}

#[test]
fn names_from_the_file_are_cut_to_one_short_line() {
    let long = "n".repeat(5000);
    let text = format!("clusters: [{{name: \"a\\n{long}\", cluster: {{insecure-skip-tls-verify: true}}}}]");
    let message = refused(&text).message;
    assert!(message.chars().count() < 150, "{message}");
}

/// Spec: safety 5 S1, S2; multikueue 11.20 (the same plugin in a kubeconfig)
#[test]
fn exec_plugin_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("canary");
    let path = serde_json::Value::from(canary.to_str().unwrap());
    let text = user(&format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: [{path}], interactiveMode: Never}}"
    ));
    assert_eq!(refused(&text).message, "exec plugins are not allowed");
    assert!(!canary.exists());
}

/// Spec: safety 1 I8
#[test]
fn debug_output_of_an_endpoint_shows_no_secret() {
    let endpoint = accepted(&user(&format!("token: {CANARY}")));
    assert!(!format!("{endpoint:?}").contains(CANARY));
}

proptest::proptest! {
    /// Spec: safety 5 S6
    #[test]
    fn no_bytes_make_the_check_fall_over(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let _either = check(&bytes, &REMOTE_ONLY);
    }

    /// Spec: safety 5 S5
    #[test]
    fn no_unknown_key_passes_in_a_user(key in "[a-zA-Z-]{1,20}") {
        let text = user(&format!("token: t, \"{key}\": {{a: b}}"));
        proptest::prop_assert_eq!(check(text.as_bytes(), &REMOTE_ONLY).is_ok(), key == "extensions");
    }
}
