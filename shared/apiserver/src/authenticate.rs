//! The users of bearer tokens. Tokens of service accounts look like a real server's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::{About, Cause, Failure};
use crate::request::{Call, User};
use crate::server::{Answer, Server, State};
use crate::tokens::Holder;
use crate::{clock, json};

/// Shortest lifetime of a requested token.
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// Default lifetime of a requested token.
const SECONDS: i64 = 3600;
const ISSUER: &str = "https://kubernetes.default.svc";

impl State {
    /// The user and the audiences of a token; `None` if it is unknown, expired, or its account is gone.
    pub(crate) fn recognize(&self, token: &str, now: Timestamp) -> Option<(User, Vec<String>)> {
        let holder = self.tokens.get(token)?;
        if holder.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        if let Some((namespace, name, uid)) = &holder.account {
            let account = self.find("serviceaccounts", namespace, name)?;
            if json::text(account, &["metadata", "uid"]) != uid {
                return None;
            }
        }
        Some((holder.user.clone(), holder.audiences.clone()))
    }
}

impl Server {
    /// Makes a token for a user that is valid until the server is dropped. It is a secret.
    pub fn issue_token(&self, user: User) -> String {
        let mut state = self.state();
        let token = URL_SAFE_NO_PAD.encode(state.secret());
        let holder = Holder {
            user,
            expires: None,
            audiences: vec![ISSUER.to_owned()],
            account: None,
            order: 0,
        };
        state.tokens.add(token.clone(), holder);
        token
    }

    /// The user of an `Authorization` header; `None` if the token is not valid.
    pub(crate) fn authenticate(&self, header: &str) -> Option<User> {
        if header.is_empty() {
            return Some(User::anonymous());
        }
        let token = header.strip_prefix("Bearer ")?;
        let now = self.now();
        self.state().recognize(token.trim(), now).map(|(user, _)| user)
    }

    /// Answers a request for a service account's token.
    pub(crate) fn mint_token(&self, call: &Call) -> Result<Answer, Failure> {
        if call.method != http::Method::POST {
            return Err(Failure::method_not_allowed());
        }
        let mut request = if call.body.is_empty() {
            json!({})
        } else {
            call.parse_body()?
        };
        let about = About {
            group: "authentication.k8s.io",
            kind: "TokenRequest",
            name: "",
        };
        if self
            .state()
            .find("serviceaccounts", &call.path.namespace, &call.path.name)
            .is_none()
        {
            return Err(Failure::not_found(call.about(&call.path.name)));
        }
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(SECONDS);
        let says = if seconds < SECONDS_MIN {
            Some("may not specify a duration less than 10 minutes")
        } else if seconds > SECONDS_MAX {
            Some("may not specify a duration larger than 2^32 seconds")
        } else {
            None
        };
        if let Some(says) = says {
            let cause = Cause::invalid("spec.expirationSeconds", &seconds.into(), says);
            return Err(Failure::invalid(about, &[cause]));
        }
        let (namespace, name) = (call.path.namespace.clone(), call.path.name.clone());
        let now = self.now();
        let mut state = self.state();
        let Some(account) = state.find("serviceaccounts", &namespace, &name).cloned() else {
            return Err(Failure::not_found(call.about(&name)));
        };
        let uid = json::text(&account, &["metadata", "uid"]).to_owned();
        let expires = now
            .saturating_add(jiff::SignedDuration::from_secs(seconds))
            .unwrap_or(now);
        let mut audiences: Vec<String> = json::texts(&request, &["spec", "audiences"])
            .into_iter()
            .map(str::to_owned)
            .collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let id = state.uid();
        let claims = json!({
            "jti": id,
            "aud": audiences, "exp": expires.as_second(), "iat": now.as_second(), "nbf": now.as_second(), "iss": ISSUER,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signature = URL_SAFE_NO_PAD.encode(state.secret());
        let token = format!(
            "{}.{}.{signature}",
            part(&json!({"alg": "RS256", "kid": "embedded"})),
            part(&claims)
        );
        let mut user = User::new(
            format!("system:serviceaccount:{namespace}:{name}"),
            &[
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
            ],
        );
        user.uid.clone_from(&uid);
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![format!("JTI={id}")],
        );
        let holder = Holder {
            user,
            expires: Some(expires),
            audiences: audiences.clone(),
            account: Some((namespace.clone(), name.clone(), uid)),
            order: 0,
        };
        state.tokens.add(token.clone(), holder);
        drop(state);
        json::set(&mut request, &["apiVersion"], "authentication.k8s.io/v1");
        json::set(&mut request, &["kind"], "TokenRequest");
        json::set(
            &mut request,
            &["metadata"],
            json!({"name": name, "namespace": namespace, "creationTimestamp": clock::seconds(now)}),
        );
        json::set(&mut request, &["spec", "audiences"], audiences);
        json::set(&mut request, &["spec", "expirationSeconds"], seconds);
        json::default(&mut request, &["spec", "boundObjectRef"], Value::Null);
        json::set(
            &mut request,
            &["status"],
            json!({"token": token, "expirationTimestamp": clock::seconds(expires)}),
        );
        Ok(Answer::Json(StatusCode::CREATED, request))
    }
}

#[cfg(test)]
mod tests;
