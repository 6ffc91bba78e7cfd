//! The source, the destination and the link between them.

use super::Endpoint;
use super::kind::{Host, Sink, Source};

/// The ends of a transfer as this process opens them.
pub struct Ends<'a> {
    /// Sources that this process opens. Empty if a process at another host opens them.
    pub sources: Vec<&'a dyn Source>,
    /// Destination that this process opens. `None` if a process at another host opens it.
    pub sink: Option<&'a dyn Sink>,
    /// Link between the two ends.
    pub link: Link<'a>,
}

/// Link between the source and the destination of a transfer.
#[derive(Clone, Copy)]
pub enum Link<'a> {
    /// This process opens both ends.
    Local,
    /// This process opens the sources, a process at the host opens the destination.
    Push(&'a dyn Host),
    /// A process at the host opens the sources, this process opens the destination.
    Pull(&'a dyn Host),
    /// Processes at two hosts open the two ends, first the sources.
    ThirdParty(&'a dyn Host, &'a dyn Host),
}

/// Reasons why endpoints do not form a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// There is no source.
    NoSource,
    /// Some sources are at this host and others at another one.
    Mixed,
    /// The sources are at different hosts.
    DifferentHosts,
    /// A source can only be a destination.
    NotSource,
    /// The destination can only be a source, and generates its data.
    NotDestination,
    /// The destination can only be a source, and has files.
    OnlySource,
}

impl<'a> Link<'a> {
    /// Returns the link between sources and a destination.
    ///
    /// # Errors
    ///
    /// [`Unresolved`].
    pub fn between(
        sources: &'a [Endpoint],
        destination: &'a Endpoint,
    ) -> Result<Link<'a>, Unresolved> {
        let [first, others @ ..] = sources else {
            return Err(Unresolved::NoSource);
        };
        let place = first.place();
        let is_elsewhere = |other: &&Endpoint| other.place() != place;
        match others.iter().find(is_elsewhere).map(Endpoint::place) {
            Some(other) if other.is_none() || place.is_none() => return Err(Unresolved::Mixed),
            Some(_) => return Err(Unresolved::DifferentHosts),
            None => {}
        }
        Ok(match (first.host(), destination.host()) {
            (None, None) => Link::Local,
            (None, Some(host)) => Link::Push(host),
            (Some(host), None) => Link::Pull(host),
            (Some(from), Some(to)) => Link::ThirdParty(from, to),
        })
    }
}

impl Endpoint {
    /// Resolves the endpoints of a transfer.
    ///
    /// # Errors
    ///
    /// [`Unresolved`].
    pub fn resolve<'a>(
        sources: &'a [Endpoint],
        destination: &'a Endpoint,
    ) -> Result<Ends<'a>, Unresolved> {
        let link = Link::between(sources, destination)?;
        if !sources.iter().all(|source| source.promises().source) {
            return Err(Unresolved::NotSource);
        }
        if !destination.promises().destination {
            return Err(if destination.promises().trees {
                Unresolved::OnlySource
            } else {
                Unresolved::NotDestination
            });
        }
        Ok(Ends {
            sources: sources.iter().filter_map(Endpoint::source).collect(),
            sink: destination.sink(),
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sources: &[&str], destination: &str) -> String {
        let parse = |text: &&str| Endpoint::parse(text.as_ref()).unwrap();
        let sources: Vec<Endpoint> = sources.iter().map(parse).collect();
        let destination = parse(&destination);
        let ends = match Endpoint::resolve(&sources, &destination) {
            Ok(ends) => ends,
            Err(error) => return format!("{error:?}"),
        };
        let link = match ends.link {
            Link::Local => "local".to_owned(),
            Link::Push(host) => format!("to {}", host.place()),
            Link::Pull(host) => format!("from {}", host.place()),
            Link::ThirdParty(from, to) => format!("{} to {}", from.place(), to.place()),
        };
        format!("{link}, {}, {}", ends.sources.len(), ends.sink.is_some())
    }

    #[test]
    fn ends_are_opened_by_the_process_that_has_them() {
        for (sources, destination, expected) in [
            (&["a", "b"][..], "c", "local, 2, true"),
            (&["-"], "null:", "local, 1, true"),
            (&["zero:1B"], "u@h:x", "to u@h, 1, false"),
            (&["h:x", "h:y"], "-", "from h, 0, true"),
            (
                &["longhaul://p@d/x"],
                "h:y",
                "longhaul://p@d:4960 to h, 0, false",
            ),
            (&[], "x", "NoSource"),
            (&["a", "h:x"], "b", "Mixed"),
            (&["h:x", "u@h:x"], "b", "DifferentHosts"),
            (&["null:"], "b", "NotSource"),
            (&["a"], "zero:1B", "NotDestination"),
            (&["a"], "ftp://h/x", "local, 1, true"),
            (&["a"], "https://h/x", "OnlySource"),
            (&["gsiftp://h/x"], "u@h:x", "to u@h, 1, false"),
        ] {
            assert_eq!(shown(sources, destination), expected, "{sources:?}");
        }
    }
}
