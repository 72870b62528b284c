//! Kubeconfig texts: one cluster, one user, everything inline.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pki::Identity;

/// The credential of a kubeconfig's user.
pub(crate) enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// A kubeconfig for the server at `url`. `name` is the cluster's and the context's name.
pub(crate) fn render(name: &str, url: &str, ca_pem: &str, credential: &Credential<'_>) -> String {
    let ca = STANDARD.encode(ca_pem);
    let user = match credential {
        Credential::Certificate(Identity { cert, key }) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            STANDARD.encode(cert),
            STANDARD.encode(key)
        ),
        // Why quoted: a token is arbitrary text, and a JSON string is a YAML string.
        Credential::Token(token) => format!("token: {}", serde_json::Value::from(*token)),
    };
    format!(
        "apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {url}
    certificate-authority-data: {ca}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
users:
- name: {name}
  user:
    {user}
"
    )
}
