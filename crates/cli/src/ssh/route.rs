//! How the data of a session over SSH went, in words.

use super::direct::Way;

/// Reasons shown; the others are like them.
const SHOWN_REASONS: usize = 4;

/// What is known of a session's way at its end.
#[derive(Clone, Debug)]
pub struct Route {
    /// Which way direct streams open.
    pub way: Way,
    /// Both ends are remote, and this one, which runs the job, is called so.
    pub between: Option<String>,
    /// Most further ssh processes that carried something at once.
    pub further: usize,
    /// Why there can be no more of them.
    pub refused: Option<String>,
    /// The far side's system ends what a login started with the login.
    pub mortal: bool,
}

impl Route {
    /// Which way, for programs: `outward`, `inward`, `ssh`, `through`.
    pub fn name(&self) -> &'static str {
        match self.way {
            Way::Outward(_) => "outward",
            Way::Inward => "inward",
            Way::Unknown | Way::Closed(_) if self.between.is_some() => "through",
            Way::Unknown | Way::Closed(_) => "ssh",
        }
    }

    /// For people, with what would make it faster.
    pub fn lines(&self) -> Vec<String> {
        let between = "direct connections between the two hosts, opened";
        let mut lines = match (&self.way, &self.between) {
            (Way::Unknown | Way::Closed(_), Some(_)) => {
                vec!["through the host of whoever asked, over SSH (--through-local)".to_owned()]
            }
            (Way::Outward(address), Some(name)) => {
                vec![format!("{between} from {name} to {address}")]
            }
            (Way::Inward, Some(name)) => vec![format!("{between} by the other one to {name}")],
            (Way::Unknown, None) => {
                vec!["over SSH; it was done before a direct way was found".to_owned()]
            }
            (Way::Outward(address), None) => {
                vec![format!("direct connections, opened from here to {address}")]
            }
            (Way::Inward, None) => {
                vec!["direct connections, opened from the far side to here".to_owned()]
            }
            (Way::Closed(reasons), None) => self.over_ssh(reasons),
        };
        let direct = matches!(self.way, Way::Outward(_) | Way::Inward);
        if direct && self.mortal {
            lines.push(
                "the far side ends what a login started when the login ends (KillUserProcesses): the \
                 ssh must live as long as the copy; `loginctl enable-linger` there changes that"
                    .to_owned(),
            );
        }
        lines
    }

    fn over_ssh(&self, reasons: &[(std::net::SocketAddr, String)]) -> Vec<String> {
        let connections = match (self.further, &self.refused) {
            (0, Some(why)) => {
                format!("one connection, for more need a login without a password ({why})")
            }
            (0, None) => "one connection".to_owned(),
            (count, _) => format!("{} connections", count + 1),
        };
        let mut lines = vec![format!(
            "over SSH alone, {connections}; faster: open one TCP port at either end in its \
             firewall and name it with --ports, or run `longhaul serve` there"
        )];
        for (_, reason) in reasons.iter().take(SHOWN_REASONS) {
            lines.push(format!("no direct connection: {reason}"));
        }
        if reasons.is_empty() {
            lines.push("no direct connection: no answer from any address, either way".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(way: Way) -> Route {
        Route {
            way,
            between: None,
            further: 0,
            refused: None,
            mortal: false,
        }
    }

    #[test]
    fn a_closed_way_names_what_would_open_it() {
        let address = "192.0.2.7:50000".parse().unwrap();
        let reason = "cannot connect to 192.0.2.7:50000".to_owned();
        let closed = Route {
            refused: Some("Permission denied (password).".to_owned()),
            ..route(Way::Closed(vec![(address, reason)]))
        };
        let text = closed.lines().join("\n");
        for part in [
            "--ports",
            "one connection",
            "Permission denied",
            "192.0.2.7",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(closed.name(), "ssh");
    }

    #[test]
    fn a_mortal_far_side_is_told_where_it_matters() {
        let address = "192.0.2.7:50000".parse().unwrap();
        for (way, told) in [(Way::Outward(address), true), (Way::Unknown, false)] {
            let mortal = Route {
                mortal: true,
                ..route(way)
            };
            let text = mortal.lines().join("\n");
            assert_eq!(text.contains("enable-linger"), told, "{text}");
        }
    }
}
