use super::*;

#[test]
fn dump() {
    for crd in all() {
        println!("---\n{}", serde_json::to_string_pretty(&crd).unwrap());
    }
}
