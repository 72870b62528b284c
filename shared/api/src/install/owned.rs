//! How objects of an installation are told from other objects.

use serde_json::{Value, json};

/// Label of every object of an installation; its value is the name of the program, or [`DEFINITIONS`].
pub const LABEL: &str = "roadstead.dev/installed";
/// The value of [`LABEL`] on the definitions, which the manager and the worker share.
pub const DEFINITIONS: &str = "roadstead-crds";
/// Label with the version that installed it.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The version of this build.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Puts the labels of the installation `name` on an object.
pub fn mark(object: &mut Value, name: &str) {
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[LABEL] = name.into();
    labels["app.kubernetes.io/part-of"] = "roadstead".into();
    labels[VERSION_LABEL] = VERSION.into();
}

/// The installation of an object, if it has one.
pub fn by(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][LABEL].as_str()
}
