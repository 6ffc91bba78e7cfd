//! Properties of the kinds of endpoints. SEMANTICS.md prints them, and a test compares the two.

/// Properties of a kind of endpoint that callers may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The endpoint can be a source.
    pub source: bool,
    /// The endpoint can be a destination.
    pub destination: bool,
    /// Data are files with names.
    pub files: bool,
    /// The endpoint has directories.
    pub trees: bool,
    /// A file appears under its name only when it is complete and verified.
    pub atomic_names: bool,
    /// The parts of a file are read and written in any order.
    pub ranges: bool,
    /// An interrupted file is resumed.
    pub resumes: bool,
    /// A copy can be tried again from the beginning.
    pub repeatable: bool,
    /// Times of modification are kept.
    pub times: bool,
    /// Permission bits are kept.
    pub modes: bool,
    /// Symbolic links are kept.
    pub links: bool,
    /// Both ends of a session compute digests of files.
    pub digests: bool,
    /// The entries can be listed.
    pub listing: bool,
    /// The entries of a directory are listed in the order of their names.
    pub ordered_listing: bool,
    /// The endpoint is standard input or standard output.
    pub standard_stream: bool,
    /// Data to and from the endpoint are always encrypted.
    pub always_encrypted: bool,
    /// The endpoint may belong to a different person. Its device files and its set-user-ID bits are
    /// copied only if an option names them.
    pub foreign: bool,
    /// Files can be removed after they were copied, and commands can run for copied files.
    pub local_files: bool,
    /// A job that a daemon runs for a principal can use the endpoint. The daemon limits the job to
    /// the rights of the principal.
    pub jobs_of_daemons: bool,
}

impl Promises {
    /// No property.
    pub(super) const NOTHING: Promises = Promises {
        source: false,
        destination: false,
        files: false,
        trees: false,
        atomic_names: false,
        ranges: false,
        resumes: false,
        repeatable: false,
        times: false,
        modes: false,
        links: false,
        digests: false,
        listing: false,
        ordered_listing: false,
        standard_stream: false,
        always_encrypted: false,
        foreign: false,
        local_files: false,
        jobs_of_daemons: false,
    };

    /// Properties of a file system that a longhaul process reads and writes.
    pub(super) const FILE_SYSTEM: Promises = Promises {
        source: true,
        destination: true,
        files: true,
        trees: true,
        atomic_names: true,
        ranges: true,
        resumes: true,
        repeatable: true,
        times: true,
        modes: true,
        links: true,
        digests: true,
        listing: true,
        ordered_listing: true,
        local_files: true,
        ..Promises::NOTHING
    };
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::super::registry::KINDS;
    use super::*;

    /// Rows of the table in SEMANTICS.md.
    // tidy: long because it names every property.
    fn rows(promises: &Promises) -> [(&'static str, bool); 19] {
        let Promises {
            source,
            destination,
            files,
            trees,
            atomic_names,
            ranges,
            resumes,
            repeatable,
            times,
            modes,
            links,
            digests,
            listing,
            ordered_listing,
            standard_stream,
            always_encrypted,
            foreign,
            local_files,
            jobs_of_daemons,
        } = *promises;
        [
            ("source of a copy", source),
            ("destination of a copy", destination),
            ("files with names", files),
            ("directories", trees),
            ("a file gets its name when it is complete", atomic_names),
            ("parts of a file in any order", ranges),
            ("an interrupted file is resumed", resumes),
            ("`--retries`", repeatable),
            ("modification times", times),
            ("permission bits", modes),
            ("symbolic links", links),
            ("digests, `longhaul verify`", digests),
            ("`longhaul ls`", listing),
            ("listing in the order of names", ordered_listing),
            ("standard input or output", standard_stream),
            ("always encrypted", always_encrypted),
            ("devices and set-ID bits only on request", foreign),
            ("`--move`, commands for copied files", local_files),
            ("jobs at a daemon", jobs_of_daemons),
        ]
    }

    fn table() -> String {
        let kinds = || KINDS.iter().rev();
        let names: Vec<&str> = kinds().map(|kind| kind.name).collect();
        let mut text = format!("| property | {} |\n", names.join(" | "));
        writeln!(text, "|---|{}", "---|".repeat(names.len())).unwrap();
        let columns: Vec<_> = kinds().map(|kind| rows(&kind.promises)).collect();
        for (number, (name, _)) in rows(&Promises::NOTHING).into_iter().enumerate() {
            let cells = columns
                .iter()
                .map(|rows| if rows[number].1 { "yes" } else { "-" });
            let cells = cells.collect::<Vec<_>>().join(" | ");
            writeln!(text, "| {name} | {cells} |").unwrap();
        }
        text
    }

    #[test]
    fn semantics_prints_the_table() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SEMANTICS.md");
        let document = std::fs::read_to_string(document).unwrap();
        let table = table();
        assert!(
            document.contains(&table),
            "SEMANTICS.md needs this table:\n{table}"
        );
    }

    #[test]
    fn properties_agree_with_each_other() {
        for kind in KINDS {
            let Promises {
                source,
                destination,
                trees,
                files,
                ..
            } = kind.promises;
            assert!(source || destination, "{}", kind.name);
            assert!(files || !trees, "{}", kind.name);
            assert!(
                kind.promises.listing || !kind.promises.ordered_listing,
                "{}",
                kind.name
            );
        }
    }
}
