//! Impersonation: a user sends `Impersonate-*` headers to act as another user.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;

use super::Wish;
use crate::failure::{About, Failure};
use crate::request::User;
use crate::server::Server;

const PREFIX: &str = "impersonate-";
const EXTRA: &str = "impersonate-extra-";

impl Server {
    /// The user of a request: its sender, or the user that its headers impersonate. *Errors*: the sender may not do that.
    pub(crate) fn acting_as(&self, request: &Request<Bytes>, sender: User) -> Result<User, Failure> {
        let headers = request.headers();
        if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
            return Ok(sender);
        }
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect()
        };
        let Some(name) = all("impersonate-user").into_iter().next() else {
            return Err(Failure::internal(
                "requested impersonation without impersonating a user",
            ));
        };
        let account = name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        match &account {
            Some((namespace, name)) => self.may_be(&sender, ("", "serviceaccounts"), namespace, name)?,
            None => self.may_be(&sender, ("", "users"), "", &name)?,
        }
        let mut groups = all("impersonate-group");
        for group in &groups {
            self.may_be(&sender, ("", "groups"), "", group)?;
        }
        let uid = all("impersonate-uid").into_iter().next().unwrap_or_default();
        if !uid.is_empty() {
            self.may_be(&sender, ("authentication.k8s.io", "uids"), "", &uid)?;
        }
        let mut extra = BTreeMap::new();
        for header in headers.keys() {
            if let Some(key) = header.as_str().strip_prefix(EXTRA) {
                let values = all(header.as_str());
                for value in &values {
                    self.may_be(&sender, ("authentication.k8s.io", "userextras"), "", value)?;
                }
                let key = url::form_urlencoded::parse(format!("k={}", key.replace('+', "%2B")).as_bytes())
                    .next()
                    .map_or_else(String::new, |(_, key)| key.into_owned());
                extra.insert(key, values);
            }
        }
        if let Some((namespace, _)) = account
            && groups.is_empty()
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if name == "system:anonymous" {
            groups.push("system:unauthenticated".to_owned());
        } else if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Ok(User {
            name,
            uid,
            groups,
            extra,
        })
    }

    fn may_be(
        &self,
        sender: &User,
        (group, resource): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        let wish = Wish {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            ..Wish::default()
        };
        if self.may(sender, &wish) {
            return Ok(());
        }
        let about = About {
            group,
            kind: resource,
            name,
        };
        let why = format!(
            "User {:?} cannot impersonate resource {resource:?} in API group {group:?}",
            sender.name
        );
        Err(Failure::forbidden(about, &why))
    }
}
