//! Describes the route of a session's data over SSH.

use super::direct::Way;

/// Maximum number of reasons shown; further ones are similar.
const SHOWN_REASONS: usize = 4;

/// Route of a session, known at its end.
#[derive(Clone, Debug)]
pub struct Route {
    /// Direction in which direct streams opened.
    pub way: Way,
    /// Set if both ends are remote and this end runs the job.
    pub between: Option<Between>,
    /// Maximum number of further ssh processes that carried data at the same time.
    pub further: usize,
    /// Reason why no more of them could be started.
    pub refused: Option<String>,
    /// True if the remote system kills the processes of a login when the login ends.
    pub mortal: bool,
}

/// Two remote ends, with the names that the user gave.
#[derive(Clone, Debug)]
pub struct Between {
    /// The end that runs the job.
    pub own: String,
    /// The other end.
    pub other: String,
    /// True if data flows from the end that runs the job.
    pub sends: bool,
    /// True if data through the caller's host is encrypted between the two remote ends.
    pub sealed: bool,
}

impl Between {
    /// Returns the source and the destination of the data.
    pub fn flow(&self) -> (&str, &str) {
        if self.sends {
            (&self.own, &self.other)
        } else {
            (&self.other, &self.own)
        }
    }
}

impl Route {
    /// Sets the direction of the data between two remote ends.
    pub fn sending(mut self, sends: bool) -> Route {
        if let Some(between) = &mut self.between {
            between.sends = sends;
        }
        self
    }

    /// Returns the end that connected and the end that it connected to, if both are remote and a
    /// direct stream opened.
    pub fn dialled(&self) -> Option<(&str, &str)> {
        let between = self.between.as_ref()?;
        let (own, other) = (between.own.as_str(), between.other.as_str());
        match self.way {
            Way::Outward(_) => Some((own, other)),
            Way::Inward => Some((other, own)),
            Way::Unknown | Way::Closed(_) => None,
        }
    }

    /// Returns the name of the route for JSON: `outward`, `inward`, `ssh` or `through`.
    pub fn name(&self) -> &'static str {
        match self.way {
            Way::Outward(_) => "outward",
            Way::Inward => "inward",
            Way::Unknown | Way::Closed(_) if self.between.is_some() => "through",
            Way::Unknown | Way::Closed(_) => "ssh",
        }
    }

    /// Describes the route for the user and says how to make it faster. `what` names the kind of
    /// data.
    pub fn lines(&self, what: &str) -> Vec<String> {
        if let Some(between) = &self.between {
            return self.with_mortal(vec![self.line_between(between, what)]);
        }
        let lines = match &self.way {
            Way::Unknown => {
                vec!["over SSH; it was done before a direct way was found".to_owned()]
            }
            Way::Outward(address) => {
                vec![format!("direct connections, opened from here to {address}")]
            }
            Way::Inward => {
                vec!["direct connections, opened from the remote host to here".to_owned()]
            }
            Way::Closed(reasons) => self.over_ssh(reasons),
        };
        self.with_mortal(lines)
    }

    /// Describes which remote end connected and the direction of the data.
    fn line_between(&self, between: &Between, what: &str) -> String {
        let (from, to) = between.flow();
        let flowed = format!("{what} flowed directly {from} -> {to}");
        let opened = "direct connections between the two hosts:";
        match (&self.way, self.dialled()) {
            (Way::Outward(address), Some((dialer, _))) => {
                // A URL also contains the port.
                let at = if between.other.contains(&address.to_string()) {
                    String::new()
                } else {
                    format!(" at {address}")
                };
                format!("{opened} {dialer} dialled {}{at}, {flowed}", between.other)
            }
            (_, Some((dialer, dialled))) => {
                format!("{opened} {dialer} dialled {dialled}, {flowed}")
            }
            (_, None) => {
                let how = if between.sealed {
                    "within TLS from the one to the other"
                } else {
                    "over SSH"
                };
                format!(
                    "{what} flowed {from} -> {to} through the user's host, {how} \
                     (--through-local)"
                )
            }
        }
    }

    fn with_mortal(&self, mut lines: Vec<String>) -> Vec<String> {
        let direct = matches!(self.way, Way::Outward(_) | Way::Inward);
        if direct && self.mortal {
            lines.push(
                "the remote host ends what a login started when the login ends (KillUserProcesses): the \
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
    use crate::endpoint::names_daemon;

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
    fn a_blocked_route_names_its_remedy() {
        let address = "192.0.2.7:50000".parse().unwrap();
        let reason = "cannot connect to 192.0.2.7:50000".to_owned();
        let closed = Route {
            refused: Some("Permission denied (password).".to_owned()),
            ..route(Way::Closed(vec![(address, reason)]))
        };
        let text = closed.lines("data").join("\n");
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
    fn the_end_of_processes_with_the_login_is_reported_for_direct_streams() {
        let address = "192.0.2.7:50000".parse().unwrap();
        for (way, told) in [(Way::Outward(address), true), (Way::Unknown, false)] {
            let mortal = Route {
                mortal: true,
                ..route(way)
            };
            let text = mortal.lines("data").join("\n");
            assert_eq!(text.contains("enable-linger"), told, "{text}");
        }
    }

    #[test]
    fn the_route_between_two_hosts_names_the_dialer_and_the_direction() {
        let address = "192.0.2.7:50000".parse().unwrap();
        let line = |way, other: &str, sends| {
            let between = Between {
                own: "dtn1".to_owned(),
                other: other.to_owned(),
                sends: false,
                sealed: names_daemon(other),
            };
            let route = Route {
                between: Some(between),
                ..route(way)
            };
            let lines = route.sending(sends).lines("data");
            assert_eq!(lines.len(), 1);
            lines.concat()
        };
        let opened = "direct connections between the two hosts:";
        for (told, line) in [
            (
                format!(
                    "{opened} dtn1 dialled dtn2 at 192.0.2.7:50000, data flowed directly dtn1 -> \
                     dtn2"
                ),
                line(Way::Outward(address), "dtn2", true),
            ),
            (
                format!("{opened} dtn2 dialled dtn1, data flowed directly dtn2 -> dtn1"),
                line(Way::Inward, "dtn2", false),
            ),
            (
                format!(
                    "{opened} dtn1 dialled longhaul://192.0.2.7:50000, data flowed directly \
                     longhaul://192.0.2.7:50000 -> dtn1"
                ),
                line(Way::Outward(address), "longhaul://192.0.2.7:50000", false),
            ),
        ] {
            assert_eq!(line, told);
        }
        for (other, how) in [
            ("dtn2", "over SSH"),
            ("longhaul://dtn2", "within TLS from the one to the other"),
        ] {
            assert_eq!(
                line(Way::Unknown, other, true),
                format!(
                    "data flowed dtn1 -> {other} through the user's host, {how} \
                     (--through-local)"
                )
            );
        }
    }
}
