//! No circle between the files of one directory.
//!
//! Files form a circle if the names in each of them lead through the others back to itself. A name that a module
//! re-exports with `use` counts as its owner's. So a `mod.rs` that declares and re-exports its children belongs to no
//! circle. One with a child that uses a definition of the `mod.rs` itself does. A directory within the directory is one
//! member. Names in tests do not count. Methods do not count either, because they are called without a path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{blank, tree, words};
use super::{is_tests, module, paths, without_tests};

/// The names on the path from the crate to a module.
type Module = Vec<String>;

/// The code of one module, and its `use` declarations: each name and the path that it stands for.
struct Code {
    file: String,
    text: String,
    imports: BTreeMap<String, Module>,
}

/// All modules. Test modules have no code here.
struct Program(BTreeMap<Module, Option<Code>>);

/// For each member of a directory, the other members that it names, and the names that it uses of each.
type Uses = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Returns the circles among `files`: paths relative to `src`, and texts.
pub(crate) fn circles(files: &[(String, String)]) -> Vec<String> {
    let program = Program::of(files);
    let folders: BTreeSet<&[String]> =
        program.0.keys().filter_map(|m| m.split_last()).map(|(_, f)| f).collect();
    let rooms = folders.into_iter().filter(|directory| !directory.is_empty());
    let mut found: Vec<String> =
        rooms.flat_map(|directory| circles_in(directory, &program.uses_in(directory))).collect();
    let globs =
        program.0.iter().filter(|(_, code)| code.as_ref().is_some_and(|c| c.text.contains("super::*")));
    found.extend(globs.map(|(module, _)| format!("{} names all that its parent has", module.join("/"))));
    found
}

impl Program {
    fn of(files: &[(String, String)]) -> Self {
        let mut program = Self(BTreeMap::new());
        for (file, text) in files.iter().filter(|(file, _)| !["main.rs", "lib.rs"].contains(&file.as_str())) {
            let text = blank(without_tests(text));
            let code = Code { file: file.clone(), text, imports: BTreeMap::new() };
            program.0.insert(module(file), (!is_tests(file)).then_some(code));
        }
        let imports: Vec<_> = program
            .0
            .iter()
            .filter_map(|(m, code)| Some((m.clone(), program.imports(m, code.as_ref()?))))
            .collect();
        for (module, imports) in imports {
            if let Some(Some(code)) = program.0.get_mut(&module) {
                code.imports = imports;
            }
        }
        program
    }

    fn imports(&self, of: &Module, code: &Code) -> BTreeMap<String, Module> {
        let mut found = BTreeMap::new();
        for at in words(&code.text, "use") {
            let declaration = code.text[at + "use".len()..].split(';').next().unwrap_or_default();
            for path in self.paths(of, &code.file, declaration) {
                if let Some(name) = path.last() {
                    found.insert(name.clone(), path);
                }
            }
        }
        found
    }

    /// Returns every path in `text` to an item in this crate, including those that begin with a child of the module.
    fn paths(&self, of: &Module, file: &str, text: &str) -> Vec<Module> {
        let mut found = paths(file, text);
        let children = self.0.keys().filter(|m| m.len() == of.len() + 1 && m.starts_with(of));
        for child in children.filter_map(|module| module.last()) {
            for at in words(text, child) {
                let inner = text[..at].ends_with("::") && !text[..at].ends_with("self::");
                if text[at + child.len()..].starts_with("::") && !inner {
                    tree(&text[at..], of, &mut found);
                }
            }
        }
        for path in &mut found {
            path.retain(|name| name != "self");
        }
        found
    }

    /// Returns the module that defines the item at `path`, and the item's name there. The module itself has no name.
    fn owner(&self, path: &[String]) -> Option<(Module, Option<String>)> {
        let mut path = path.to_vec();
        // No name is re-exported more often than this.
        for _ in 0..8 {
            let known = (1..=path.len()).rev().find(|n| self.0.contains_key(&path[..*n]))?;
            let (module, rest) = path.split_at(known);
            let code = self.0[module].as_ref();
            match rest.first().and_then(|name| code?.imports.get(name)) {
                Some(further) if further.as_slice() != path => {
                    path = [further.as_slice(), &rest[1..]].concat();
                }
                _ => return Some((module.to_vec(), rest.first().cloned())),
            }
        }
        None
    }

    /// Returns the uses among the members of `directory`, including itself.
    fn uses_in(&self, directory: &[String]) -> Uses {
        let member = |module: &Module| {
            let inside = module.starts_with(directory);
            inside.then(|| module[..module.len().min(directory.len() + 1)].to_vec())
        };
        let mut found = Uses::new();
        for (from, code) in self.0.iter().filter_map(|(from, code)| Some((from, code.as_ref()?))) {
            let Some(by) = member(from) else { continue };
            for path in self.paths(from, &code.file, &code.text) {
                let Some((to, name)) = self.owner(&path) else { continue };
                // The path in a visibility.
                let is_parent = name.is_none() && from.starts_with(&to);
                let Some(used) = member(&to).filter(|used| *used != by) else { continue };
                if !is_parent && self.0[&to].is_some() {
                    let name = name.or_else(|| to.last().cloned()).unwrap_or_default();
                    found.entry(by.clone()).or_default().entry(used).or_default().insert(name);
                }
            }
        }
        found
    }
}

/// Returns a sentence for each circle: one of the shortest ways round.
fn circles_in(directory: &[String], uses: &Uses) -> Vec<String> {
    let mut found = Vec::new();
    let mut done = BTreeSet::new();
    for from in uses.keys() {
        let Some(round) = way(uses, from, from).filter(|_| !done.contains(from)) else { continue };
        let last = |module: &Module| {
            if module.as_slice() == directory { "mod".to_owned() } else { module[directory.len()].clone() }
        };
        let steps = round.windows(2).map(|step| {
            let names: Vec<&str> = uses[&step[0]][&step[1]].iter().map(String::as_str).collect();
            format!(" -> {} ({})", last(&step[1]), names.join(", "))
        });
        let steps: String = steps.collect();
        found.push(format!("a circle in {}: {}{steps}", directory.join("/"), last(from)));
        done.extend(round);
    }
    found
}

/// Returns one of the shortest ways from one member to another, or round to itself, with both ends.
fn way(uses: &Uses, from: &Module, to: &Module) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| uses.get(last)).into_iter().flat_map(BTreeMap::keys) {
            let longer = [way.as_slice(), std::slice::from_ref(next)].concat();
            if next == to {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}

#[test]
fn cycles_are_found() {
    for (files, wanted) in [
        (
            &[
                ("a/mod.rs", "pub use one::One;"),
                ("a/one.rs", "use super::two::f;"),
                ("a/two.rs", "use super::One;"),
            ] as &[_],
            "a circle in a: one -> two (f) -> one (One)",
        ),
        (
            &[("a/mod.rs", "struct Here; fn f() { one::run() }"), ("a/one.rs", "fn run() { super::Here; }")],
            "a circle in a: mod -> one (run) -> mod (Here)",
        ),
        (
            &[
                ("a/b/mod.rs", "use super::c::C;"),
                ("a/b/in.rs", ""),
                ("a/c.rs", "fn f() { super::b::in::g() }"),
            ],
            "a circle in a: b -> c (C) -> b (g)",
        ),
        (&[("a/one.rs", "use super::*;")], "a/one names all that its parent has"),
    ] {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        let sources: Vec<_> = files.iter().map(owned).collect();
        assert_eq!(circles(&sources), [wanted], "{files:?}");
    }
}
