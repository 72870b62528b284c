//! Names of requests and templates, as the reference makes them. *Source*: `spec/provisioning.md 5`.

/// *Limit*: the length of a name in bytes; a longer name is cut and gets a suffix.
pub const NAME_MAX: usize = 247;

/// First five hex digits of the SHA-1 of a text. Why an argument: core has no hash function.
pub type Suffix = fn(&str) -> String;

/// The name of a request: `<workload>-<check>-<attempt>`.
pub fn request(workload: &str, check: &str, attempt: u32, suffix: Suffix) -> String {
    limit(format!("{workload}-{check}-{attempt}"), suffix)
}

/// The name of a template: `ppt-<request>-<pod set>`.
pub fn template(request: &str, pod_set: &str, suffix: Suffix) -> String {
    limit(format!("ppt-{request}-{pod_set}"), suffix)
}

/// The attempt, if the name is that of a request of this check. A name that was cut does not contain it: `None`.
pub fn attempt(name: &str, workload: &str, check: &str, suffix: Suffix) -> Option<u32> {
    let digits = name.strip_prefix(&limit(format!("{workload}-{check}-"), suffix))?;
    // Why: `parse` alone would accept a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

fn limit(name: String, suffix: Suffix) -> String {
    let Some(kept) = name.get(..NAME_MAX) else {
        return name;
    };
    if kept.len() == name.len() {
        return name;
    }
    format!("{kept}-{}", suffix(&name))
}
