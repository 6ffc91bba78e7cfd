//! A list of files (`--files-from`): a tree of names for each source.

use std::collections::btree_map::Keys;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_proto::byte_string::ByteString;
use longhaul_proto::filter::ListedPath;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::failure::failure_of;

use super::source::{Source, Sources, What};

/// Maximum number of different directories before `/./` in one list. Each is open during the copy.
const MAXIMUM_ANCHORS: usize = 256;

/// A name in a list of files, with the listed names beneath it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    names: BTreeMap<Box<[u8]>, Arc<Listed>>,
    /// True if the name itself is listed.
    pub itself: bool,
    /// True if it is listed with a slash at its end, so its direct contents are listed too.
    pub contents: bool,
}

impl Listed {
    fn add<'a>(&mut self, mut names: impl Iterator<Item = &'a [u8]>, contents: bool) {
        match names.next() {
            None if contents => self.contents = true,
            None => self.itself = true,
            Some(name) => {
                let below = self.names.entry(name.into()).or_default();
                Arc::make_mut(below).add(names, contents);
            }
        }
    }

    fn add_path(&mut self, path: Option<&TreePath>, contents: bool) {
        let names = path.into_iter().flat_map(TreePath::names);
        self.add(names, contents);
    }

    /// Returns the names directly beneath it, in byte order.
    pub fn names(&self) -> Keys<'_, Box<[u8]>, Arc<Listed>> {
        self.names.keys()
    }

    /// Returns the listed part of a name directly beneath it.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Listed>> {
        self.names.get(name)
    }

    /// True if it is listed, with or without a slash at its end.
    pub fn is_itself(&self) -> bool {
        self.itself || self.contents
    }

    /// True if names in it are listed.
    pub fn leads_on(&self) -> bool {
        self.contents || !self.names.is_empty()
    }

    /// Adds the listed paths that need this name, with path `path`, to be a directory.
    pub fn paths_beneath(&self, path: &[u8], paths: &mut Vec<Vec<u8>>) {
        if self.contents {
            paths.push([path, b"/"].concat());
        }
        for (name, below) in &self.names {
            let path = [path, b"/", name].concat();
            if below.itself {
                paths.push(path.clone());
            }
            below.paths_beneath(&path, paths);
        }
    }
}

/// Divides a list among sources: anchors and invalid lines become sources of their own, each with
/// its part of the list.
pub(super) fn divided(sources: Sources, files: &[ByteString]) -> Sources {
    let mut divided = Vec::new();
    for source in sources.into_list() {
        if source.what != What::Contents {
            divided.push(source);
            continue;
        }
        let parts = Parts::read(files);
        let failures = parts.failures.into_iter();
        divided.extend(failures.map(|(text, failure)| Source::missing(&text, failure)));
        let anchored = parts.anchored.into_iter();
        divided.extend(anchored.map(|(anchor, listed)| beneath(&source, &anchor, listed)));
        divided.push(Source {
            listed: Some(Arc::new(parts.listed)),
            ..source
        });
    }
    Sources::new(divided)
}

/// Returns all paths of a list beneath the source, with those that have anchors.
pub(super) fn whole_list(files: &[ByteString]) -> Arc<Listed> {
    let mut listed = Listed::default();
    for read in files.iter().filter_map(|line| ListedPath::read(line).ok()) {
        let names = [&read.anchor, &read.path].into_iter().flatten();
        listed.add(names.flat_map(TreePath::names), read.contents);
    }
    Arc::new(listed)
}

/// A parsed list.
#[derive(Default)]
struct Parts {
    /// Paths beneath the source.
    listed: Listed,
    /// Paths beneath directories of the source, by directory.
    anchored: Vec<(TreePath, Listed)>,
    /// Lines that cannot be copied.
    failures: Vec<(Vec<u8>, Failure)>,
}

impl Parts {
    fn read(files: &[ByteString]) -> Parts {
        let mut parts = Parts::default();
        let mut numbers: HashMap<TreePath, usize> = HashMap::new();
        for line in files {
            let read = ListedPath::read(line).map_err(|error| error.to_string());
            let added = read.and_then(|read| parts.add(&read, &mut numbers));
            if let Err(text) = added {
                let text = format!("listed path {}: {text}", line.escape_ascii());
                let failure = Failure::new(FailureKind::Name, text);
                parts.failures.push((line.to_vec(), failure));
            }
        }
        parts
    }

    fn add(
        &mut self,
        read: &ListedPath,
        numbers: &mut HashMap<TreePath, usize>,
    ) -> Result<(), String> {
        let listed = match &read.anchor {
            None => &mut self.listed,
            Some(anchor) => {
                let next = self.anchored.len();
                let number = match numbers.get(anchor) {
                    Some(number) => *number,
                    None if next == MAXIMUM_ANCHORS => {
                        return Err(format!(
                            "the list has more than {MAXIMUM_ANCHORS} different directories \
                             before /./: split it"
                        ));
                    }
                    None => {
                        self.anchored.push((anchor.clone(), Listed::default()));
                        numbers.insert(anchor.clone(), next);
                        next
                    }
                };
                &mut self.anchored[number].1
            }
        };
        listed.add_path(read.path.as_ref(), read.contents);
        Ok(())
    }
}

/// Makes a source of the contents of a source's directory.
fn beneath(source: &Source, anchor: &TreePath, listed: Listed) -> Source {
    let shown = format!("{}/{anchor}", source.shown.trim_end_matches('/'));
    let opened = source.directory.open();
    match opened.and_then(|directory| open_beneath(&*directory, anchor)) {
        Ok(directory) => Source {
            listed: Some(Arc::new(listed)),
            ..Source::new(directory.into(), What::Contents, shown)
        },
        Err(error) => {
            let failure = failure_of("open the listed directory", &shown, &error);
            Source::missing(anchor.as_bytes(), failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(lines: &[&str]) -> Parts {
        let lines = lines.iter().map(|line| line.as_bytes().to_vec().into());
        Parts::read(&lines.collect::<Vec<_>>())
    }

    #[test]
    fn lines_are_divided_by_their_anchors() {
        let parts = parts(&["a/b", "c/./d", "c/./e/", "../x", "c/./../y", "."]);
        assert!(parts.listed.contents && !parts.listed.itself);
        assert!(parts.listed.get(b"a").unwrap().get(b"b").unwrap().itself);
        let (anchor, listed) = &parts.anchored[0];
        assert_eq!((parts.anchored.len(), anchor.as_bytes()), (1, &b"c"[..]));
        assert!(listed.get(b"d").unwrap().itself && listed.get(b"e").unwrap().contents);
        let failures: Vec<_> = parts.failures.iter().map(|(line, _)| &line[..]).collect();
        assert_eq!(failures, [&b"../x"[..], b"c/./../y"]);
    }

    #[test]
    fn anchors_are_bounded() {
        let lines: Vec<String> = (0..=MAXIMUM_ANCHORS)
            .map(|at| format!("{at}/./x"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let parts = parts(&lines);
        assert_eq!(
            (parts.anchored.len(), parts.failures.len()),
            (MAXIMUM_ANCHORS, 1)
        );
    }

    #[test]
    fn paths_beneath_a_name_are_known() {
        let parts = parts(&["l/x", "l/y/z", "l"]);
        let listed = parts.listed.get(b"l").unwrap();
        let mut paths = Vec::new();
        listed.paths_beneath(b"l", &mut paths);
        assert_eq!(paths, [b"l/x".to_vec(), b"l/y/z".to_vec()]);
        assert!(listed.itself);
    }
}
