//! Modules of one crate that need each other in a circle.
//!
//! A circle means that neither of its modules can be read, tested or moved alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A module, by the names from the root of its crate.
type Module = Vec<String>;
/// For each module, the modules it names.
type Needs = BTreeMap<Module, BTreeSet<Module>>;

/// Paths that a file of the product names and that begin in its own crate.
struct Paths {
    /// The module that is read.
    inside: Module,
    found: Vec<Module>,
}

impl Paths {
    /// Keeps a path if it begins in this crate, written from the root.
    fn keep(&mut self, path: &[String]) {
        let mut from = self.inside.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => {
                from.clear();
                rest = &rest[1..];
            }
            Some("self") => rest = &rest[1..],
            Some("super") => {}
            Some(_) | None => return,
        }
        while rest.first().is_some_and(|name| name == "super") {
            from.pop();
            rest = &rest[1..];
        }
        from.extend_from_slice(rest);
        self.found.push(from);
    }

    fn keep_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.keep_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.keep(&with(name.ident.to_string())),
            UseTree::Rename(name) => self.keep(&with(name.ident.to_string())),
            UseTree::Glob(_) => self.keep(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.keep_tree(before, tree)),
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.keep_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = { path.segments.iter() }
            .map(|segment| segment.ident.to_string())
            .collect();
        self.keep(&names);
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these are cut out for tests")]
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|name| name == "test")
    })
}

/// The modules of a crate with what each needs; tests aside.
fn needs(sources: &Path) -> Needs {
    let mut files: BTreeMap<Module, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![sources.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(sources).unwrap().with_extension("");
            let mut names: Module = { below.iter() }
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            if names.iter().any(|name| name == "tests" || name == "bin")
                || path.extension().is_none_or(|end| end != "rs")
            {
                continue;
            }
            names.retain(|name| name != "lib" && name != "main");
            files.entry(names).or_default().push(path);
        }
    }
    let parse = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let mut parsed: BTreeMap<Module, Vec<syn::File>> = { files.iter() }
        .map(|(module, paths)| (module.clone(), paths.iter().map(parse).collect()))
        .collect();
    let for_tests: Vec<Module> = { parsed.iter() }
        .flat_map(|(module, files)| files.iter().flat_map(move |file| for_tests_in(module, file)))
        .collect();
    parsed.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));
    let module_of = |path: &Module| {
        let prefixes = (0..=path.len()).rev().map(|end| path[..end].to_vec());
        prefixes.into_iter().find(|name| parsed.contains_key(name))
    };
    let read = |(inside, files): (&Module, &Vec<syn::File>)| {
        let mut reading = Paths {
            inside: inside.clone(),
            found: Vec::new(),
        };
        for file in files {
            reading.visit_file(file);
        }
        let needed = reading.found.iter().filter_map(module_of);
        (inside.clone(), needed.filter(|module| module != inside).collect())
    };
    parsed.iter().map(read).collect()
}

/// The modules of a file that are files of their own and are there for tests only.
fn for_tests_in(inside: &Module, file: &syn::File) -> Vec<Module> {
    let modules = file.items.iter().filter_map(|item| {
        let Item::Mod(module) = item else { return None };
        is_for_tests(&module.attrs).then(|| module.ident.to_string())
    });
    modules
        .map(|name| [inside.as_slice(), &[name]].concat())
        .collect()
}

/// The circles between modules that stand side by side, each with the module in which they stand.
fn circles(needs: &Needs) -> BTreeSet<(String, Vec<String>)> {
    let mut beside: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (from, to) in needs
        .iter()
        .flat_map(|(from, all)| all.iter().map(move |to| (from, to)))
    {
        let shared = from
            .iter()
            .zip(to)
            .take_while(|(one, other)| one == other)
            .count();
        if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
            let arrows = beside.entry(&from[..shared]).or_default();
            arrows.entry(one).or_default().insert(other);
        }
    }
    let mut found = BTreeSet::new();
    for (parent, arrows) in beside {
        let reached: BTreeMap<&str, BTreeSet<&str>> = arrows
            .keys()
            .map(|&from| (from, reachable(&arrows, from)))
            .collect();
        for (from, to) in &reached {
            let circle: Vec<String> = { to.iter() }
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(from)))
                .map(|name| (*name).to_owned())
                .collect();
            if !circle.is_empty() {
                found.insert((parent.join("::"), circle));
            }
        }
    }
    found
}

/// What is reached from a module in one step or more.
fn reachable<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut due) = (BTreeSet::new(), vec![from]);
    while let Some(next) = due.pop() {
        for &to in arrows.get(next).into_iter().flatten() {
            if seen.insert(to) {
                due.push(to);
            }
        }
    }
    seen
}

/// Design: 3.
#[test]
fn modules_of_a_crate_need_each_other_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !path.is_dir() || name == "target" || name.starts_with('.') {
                continue;
            }
            if name == "src" {
                let of = folder.strip_prefix(&root).unwrap().display().to_string();
                let here = circles(&needs(&path)).into_iter();
                found.extend(here.map(|(parent, names)| (of.clone(), parent, names)));
            } else {
                folders.push(path);
            }
        }
    }
    assert!(
        found.is_empty(),
        "circles; let one of the modules go without the other:\n{found:#?}"
    );
}

#[test]
fn a_circle_is_found_and_a_tree_is_none() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let needs = |arrows: &[(&str, &str)]| {
        let mut needs = Needs::new();
        for (from, to) in arrows {
            needs.entry(module(from)).or_default().insert(module(to));
        }
        needs
    };
    assert!(circles(&needs(&[("a", "b"), ("b", "c"), ("a::x", "a::y"), ("a", "c")])).is_empty());
    let found = circles(&needs(&[
        ("a::x", "b"),
        ("b", "c::z"),
        ("c", "a"),
        ("c", "d"),
        ("b::x", "b::y"),
    ]));
    assert_eq!(
        found,
        [(String::new(), ["a", "b", "c"].map(str::to_owned).to_vec())].into()
    );
}

#[test]
fn paths_are_read_from_uses_and_expressions_and_not_from_tests() {
    let file = syn::parse_file(
        "use crate::one::{self, Two as Three, four::Five};
         use super::six;
         use std::fmt;
         fn f() -> crate::seven::Eight { self::nine::ten() }
         #[cfg(test)] mod tests { use crate::eleven; }",
    )
    .unwrap();
    let mut reading = Paths {
        inside: vec!["here".to_owned(), "there".to_owned()],
        found: Vec::new(),
    };
    reading.visit_file(&file);
    let found: Vec<String> = reading.found.iter().map(|path| path.join("::")).collect();
    assert_eq!(
        found,
        [
            "one::self",
            "one::Two",
            "one::four::Five",
            "here::six",
            "seven::Eight",
            "here::there::nine::ten",
        ]
    );
}
