//! Names the ends of a copy that store superuser metadata in extended attributes.

use std::str::FromStr;

use longhaul_proto::keeping::{Keeping, KeepingError};

use crate::endpoint::Endpoint;

/// The end of a copy that stores superuser metadata in extended attributes, as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeSuper {
    /// Each end on this host, like rsync's `--fake-super`.
    Here,
    /// Each end at another host, like rsync's `-M--fake-super`.
    There,
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Both ends.
    Both,
}

impl FromStr for FakeSuper {
    type Err = String;

    fn from_str(text: &str) -> Result<FakeSuper, String> {
        Ok(match text {
            "here" => FakeSuper::Here,
            "there" => FakeSuper::There,
            "source" => FakeSuper::Source,
            "destination" => FakeSuper::Destination,
            "both" => FakeSuper::Both,
            _ => return Err("write source, destination or both".to_owned()),
        })
    }
}

impl FakeSuper {
    /// Parses an option for the other end, like the argument of rsync's `-M`.
    ///
    /// # Errors
    ///
    /// Returns a message for the user if it is not `--fake-super`.
    pub fn of_far_end(text: &str) -> Result<FakeSuper, String> {
        match text {
            "--fake-super" => Ok(FakeSuper::There),
            _ => Err("the other end takes no options but --fake-super".to_owned()),
        }
    }

    /// Sets the fake flags of the named end. `ends` are the source and the destination.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such end.
    pub fn set(self, keep: Keeping, ends: [Option<&Endpoint>; 2]) -> Result<Keeping, KeepingError> {
        let are_here = ends.map(|end| end.is_none_or(|end| end.host_name().is_none()));
        let [source, destination] = match self {
            FakeSuper::Here => are_here,
            FakeSuper::There => are_here.map(|is_here| !is_here),
            FakeSuper::Source => [true, false],
            FakeSuper::Destination => [false, true],
            FakeSuper::Both => [true, true],
        };
        let text = match self {
            _ if source || destination => {
                return Ok(Keeping {
                    fake_source: keep.fake_source || source,
                    fake_destination: keep.fake_destination || destination,
                    ..keep
                });
            }
            FakeSuper::There => {
                "-M--fake-super: no end of the copy is at another host: leave -M out"
            }
            _ => {
                "--fake-super: no end of the copy is on this host: write --fake-super=source, \
                 destination or both"
            }
        };
        Err(KeepingError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_named_as_in_rsync_or_by_itself() {
        let [here, there] = ["a", "host:b"].map(|text| Endpoint::parse(text.as_ref()).unwrap());
        let of = |end: FakeSuper, are_here: [bool; 2]| {
            let ends = are_here.map(|is_here| Some(if is_here { &here } else { &there }));
            let keep = end.set(Keeping::default(), ends).ok()?;
            Some([keep.fake_source, keep.fake_destination])
        };
        for (end, are_here, fakes) in [
            (FakeSuper::Here, [true, true], Some([true, true])),
            (FakeSuper::Here, [true, false], Some([true, false])),
            (FakeSuper::There, [true, false], Some([false, true])),
            (FakeSuper::There, [true, true], None),
            (FakeSuper::Here, [false, false], None),
            (FakeSuper::Source, [false, false], Some([true, false])),
            (FakeSuper::Both, [true, false], Some([true, true])),
        ] {
            assert_eq!(of(end, are_here), fakes, "{end:?} {are_here:?}");
        }
        assert!("elsewhere".parse::<FakeSuper>().is_err());
    }
}
