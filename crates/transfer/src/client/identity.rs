//! Identifies a transfer, so that the same command, run again, resumes it and takes over (SEMANTICS
//! 12, 16). The key contains the location of the sources, the principal and the sources. FORMAT.md,
//! "Source keys", defines the order. A change of it requires a new `VERSION`.

use std::io;

use longhaul_proto::assembly::Assembly;
use longhaul_storage::origin::known_everywhere;

use super::local_paths::Here;
use super::owner::{host_name, owner};
use crate::endpoint::Endpoint;

/// Context string for the key derivation. Its last word is the version.
const VERSION: &str = "longhaul 2026 source of a transfer 2";

/// Begin of the place of a task. No name of a host or of a file system contains a zero byte.
const TASK: &[u8] = b"task \0";

/// Keys of a transfer on this host, and on all hosts that see the same sources.
pub struct SourceKey {
    /// Hash of this host and the sources.
    pub source: [u8; 32],
    /// Hash of the sources alone; `None` if the same paths on a different host would be different
    /// sources.
    pub anywhere: Option<[u8; 32]>,
}

impl SourceKey {
    /// Computes the keys of the given sources. `task` is the specification's; all hosts have the
    /// same keys for a task.
    ///
    /// # Errors
    ///
    /// A relative path cannot be made absolute.
    pub fn new(
        sources: &[Endpoint],
        here: &Here,
        assembly: Option<Assembly>,
        task: Option<&str>,
    ) -> io::Result<SourceKey> {
        let part = assembly.and_then(Assembly::range);
        if let Some(task) = task {
            let source = hash(&[TASK, task.as_bytes()].concat(), sources, here, part)?;
            let anywhere = Some(source);
            return Ok(SourceKey { source, anywhere });
        }
        let host = host_name();
        let mut key = SourceKey {
            source: hash(host.as_bytes(), sources, here, part)?,
            anywhere: None,
        };
        let known = match sources.first() {
            // The name of a host means the same host everywhere.
            Some(first) if first.host_name().is_some() => Some(Vec::new()),
            Some(first) => first
                .local_path()
                .and_then(|path| here.path(path))
                // A path that cannot be read is reported when it is opened.
                .and_then(|path| known_everywhere(path).ok().flatten()),
            None => None,
        };
        if let Some(known) = known {
            key.anywhere = Some(hash(&known, sources, here, part)?);
        }
        Ok(key)
    }
}

/// Hash of fields. Each field is preceded by its length, so that different lists give different
/// hashes.
struct Fields(blake3::Hasher);

impl Fields {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// Sessions that copy different parts of a file are different transfers.
fn hash(
    place: &[u8],
    sources: &[Endpoint],
    here: &Here,
    part: Option<(u64, u64)>,
) -> io::Result<[u8; 32]> {
    let mut fields = Fields(blake3::Hasher::new_derive_key(VERSION));
    fields.add(place);
    fields.add(here.principal().unwrap_or_default().as_bytes());
    for source in sources {
        for field in source.identity(&owner().session)? {
            fields.add(&field);
        }
    }
    if let Some((start, end)) = part {
        fields.add(b"part");
        fields.add(&start.to_le_bytes());
        fields.add(&end.to_le_bytes());
    }
    Ok(*fields.0.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn key(texts: &[&str]) -> [u8; 32] {
        let parse = |text: &&str| Endpoint::parse(OsStr::new(text)).unwrap();
        let sources: Vec<Endpoint> = texts.iter().map(parse).collect();
        hash(b"host", &sources, &Here::Anywhere, None).unwrap()
    }

    #[test]
    fn a_key_depends_on_every_field_and_on_no_other_value() {
        let all = [
            &["/a"][..],
            &["/a", "/b"],
            &["/ab"],
            &["h:a"],
            &["h:a", "h:b"],
            &["u@h:a"],
            &["longhaul://h/a"],
            &["longhaul://p@h/a"],
            &["longhaul://h:7/a"],
            &["longhaul://h/zero:7B"],
            &["zero:7B"],
        ];
        let keys: std::collections::HashSet<[u8; 32]> = all.iter().map(|one| key(one)).collect();
        assert_eq!(keys.len(), all.len());
        assert_eq!(key(&["/a"]), key(&["/a"]));
        assert_ne!(key(&["-"]), key(&["-"]), "a pipe is read once");
    }

    #[test]
    fn tasks_have_keys_of_their_own() {
        let source = [Endpoint::parse("/a".as_ref()).unwrap()];
        let key = |task| SourceKey::new(&source, &Here::Anywhere, None, task).unwrap();
        assert_ne!(key(None).source, key(Some("1")).source);
        assert_ne!(key(Some("1")).source, key(Some("2")).source);
        assert_eq!(key(Some("1")).source, key(Some("1")).source);
        assert_eq!(key(Some("1")).anywhere, Some(key(Some("1")).source));
    }

    #[test]
    fn the_order_of_the_keys_fields_is_fixed() {
        // A different order would make an earlier run's partial files unusable.
        let hexadecimal = crate::manifest::hexadecimal(&key(&["/data/run 1", "u@h:x"]));
        let expected = "8798613c322945c3231ebfc3941c2f4f75bdab1cad6f45a2b1a08cc0c6fe02d2";
        assert_eq!(hexadecimal, expected);
    }
}
