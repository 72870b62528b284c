//! The paths by which a pod set names its template in a component. *Source*: `spec/appwrapper.md 1.4`.

use serde_json::Value;

/// The pod template at a path: a map with a readable `spec`.
///
/// *Errors*: why there is none, in the words of the reference.
pub fn pod_template<'a>(template: &'a Value, path: &str) -> Result<&'a Value, String> {
    let found = resolve(template, path)?;
    let Some(spec) = found.get("spec").and_then(Value::as_object) else {
        return Err(format!("content at {path} does not contain a spec"));
    };
    // Why only this: fields of a newer Kubernetes are no fault, but lists that the engine reads must be lists.
    for list in ["containers", "initContainers", "tolerations"] {
        let wrong = |value: &Value| {
            !value.is_null()
                && value
                    .as_array()
                    .is_none_or(|all| !all.iter().all(Value::is_object))
        };
        if spec.get(list).is_some_and(wrong) {
            return Err(format!(
                "content at {path}.spec not parseable as a v1.PodSpec: {list} must be a list of objects"
            ));
        }
    }
    Ok(found)
}

/// The pod template at a path, mutable.
///
/// *Errors*: as [`pod_template`].
pub fn pod_template_mut<'a>(template: &'a mut Value, path: &str) -> Result<&'a mut Value, String> {
    pod_template(template, path)?;
    let place = path.strip_prefix("template").unwrap_or_default();
    // The path is known to exist, so it can be written as a JSON pointer.
    let place = place
        .replace('~', "~0")
        .replace('/', "~1")
        .replace(']', "")
        .replace(['.', '['], "/");
    template
        .pointer_mut(&place)
        .ok_or_else(|| format!("content at {path} cannot be changed"))
}

fn resolve<'a>(template: &'a Value, path: &str) -> Result<&'a Value, String> {
    let rest = path
        .strip_prefix("template")
        .filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let Some(mut rest) = rest else {
        return Err("first element of the path must be 'template'".to_owned());
    };
    let mut current = template;
    while !rest.is_empty() {
        let consumed = path.len() - rest.len();
        let at = |why: String| {
            let prefix = path.get(..consumed).unwrap_or_default();
            Err(format!("at path position '{prefix}' {why}"))
        };
        if let Some(after) = rest.strip_prefix('[') {
            let Some((text, behind)) = after.split_once(']') else {
                return at(format!("invalid array index '{rest}'"));
            };
            let Ok(index) = text.parse::<i64>() else {
                return at(format!("invalid index expression '{text}'"));
            };
            let Some(items) = current.as_array() else {
                return at("found non-array value".to_owned());
            };
            match usize::try_from(index).ok().and_then(|index| items.get(index)) {
                Some(item) => current = item,
                None => return at(format!("out of bounds index '{index}'")),
            }
            rest = behind;
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, behind) = after.split_at(end);
            let Some(fields) = current.as_object() else {
                return at("non-map value".to_owned());
            };
            match fields.get(key) {
                Some(field) => current = field,
                None => return at(format!("missing field '{key}'")),
            }
            rest = behind;
        } else {
            return at(format!("invalid path element '{rest}'"));
        }
    }
    Ok(current)
}
