//! Credentials from the environment and from the profiles of Amazon's command line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Maximum size of a file of profiles in bytes.
const MAXIMUM_BYTES: u64 = 1 << 20;

/// Credentials of requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Public part.
    pub access_key: String,
    /// Secret part.
    pub secret_key: String,
    /// Token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    /// Writes no part of the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credentials")
    }
}

/// Credentials and the region that stands beside them.
#[derive(Debug, Default)]
pub struct Profile {
    /// Credentials, if there are any.
    pub credentials: Option<Credentials>,
    /// Region.
    pub region: Option<String>,
}

/// Variables of the environment.
pub type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl Profile {
    /// Finds the credentials and the region: first in the variables `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` and `AWS_DEFAULT_REGION`, then in
    /// the profile `AWS_PROFILE` of `~/.aws/credentials` and `~/.aws/config`.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the profile that is named does not exist.
    pub fn find(variables: &Variables<'_>) -> Result<Profile, Error> {
        let variable = |name: &str| variables(name).filter(|value| !value.is_empty());
        let named = variable("AWS_PROFILE");
        let name = named.as_deref().unwrap_or("default");
        let home = variable("HOME").map(PathBuf::from);
        let file = |name: &str, usual: &str| {
            let path = variable(name).map(PathBuf::from);
            path.or_else(|| home.as_ref().map(|home| home.join(".aws").join(usual)))
        };
        let secrets = read(file("AWS_SHARED_CREDENTIALS_FILE", "credentials").as_deref())?;
        let config = read(file("AWS_CONFIG_FILE", "config").as_deref())?;
        let secrets = section(&secrets, name);
        let prefixed = format!("profile {name}");
        let config = section(&config, &prefixed).or_else(|| section(&config, name));
        if named.is_some() && secrets.is_none() && config.is_none() {
            let text = format!("there is no profile {name} in ~/.aws");
            return Err(Error::Credentials(text));
        }
        let (secrets, config) = (secrets.unwrap_or_default(), config.unwrap_or_default());
        let of_profile = |key: &str| secrets.get(key).or_else(|| config.get(key)).cloned();
        let from_variables = credentials(
            variable("AWS_ACCESS_KEY_ID"),
            variable("AWS_SECRET_ACCESS_KEY"),
            variable("AWS_SESSION_TOKEN"),
        );
        let from_profile = || {
            credentials(
                of_profile("aws_access_key_id"),
                of_profile("aws_secret_access_key"),
                of_profile("aws_session_token"),
            )
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        Ok(Profile {
            credentials: from_variables.or_else(from_profile),
            region: region.or_else(|| of_profile("region")),
        })
    }
}

fn credentials(
    access_key: Option<String>,
    secret_key: Option<String>,
    session_token: Option<String>,
) -> Option<Credentials> {
    Some(Credentials {
        access_key: access_key?,
        secret_key: secret_key?,
        session_token,
    })
}

/// Reads a file; a missing one is empty.
fn read(path: Option<&Path>) -> Result<String, Error> {
    let Some(path) = path else {
        return Ok(String::new());
    };
    let failed = |error| Error::Credentials(format!("read {}: {error}", path.display()));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Ok(status) if status.len() > MAXIMUM_BYTES => {
            return Err(Error::Credentials(format!(
                "{} is too large",
                path.display()
            )));
        }
        _ => {}
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Returns the values of a section.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines() {
        // Indented lines belong to a nested value.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            is_inside = header.split(']').next().map(str::trim) == Some(name);
            if is_inside {
                found.get_or_insert_default();
            }
        } else if let (Some((key, value)), true) = (line.split_once('='), is_inside) {
            let values = found.get_or_insert_default();
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Profile, Error> {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".aws");
        std::fs::create_dir(&directory).unwrap();
        let secrets = "[default]\naws_access_key_id = A\naws_secret_access_key=secret1=\n\
                       [other]\naws_access_key_id=B\naws_secret_access_key=secret2\n\
                       aws_session_token=t\n";
        let config = "# x\n[default]\nregion=eu-west-1\ns3 =\n  region=no\n\
                      [profile other]\nregion = us-west-2\n";
        std::fs::write(directory.join("credentials"), secrets).unwrap();
        std::fs::write(directory.join("config"), config).unwrap();
        Profile::find(&|name| match name {
            "HOME" => Some(home.path().to_str().unwrap().to_owned()),
            _ => {
                let variable = variables.iter().find(|(known, _)| *known == name);
                variable.map(|(_, value)| (*value).to_owned())
            }
        })
    }

    #[test]
    fn credentials_are_found_in_order() {
        let shown = |variables: &[(&str, &str)]| {
            let profile = find(variables).unwrap();
            let found = profile.credentials.unwrap();
            assert!(!format!("{found:?}").contains("secret"));
            let token = found.session_token.unwrap_or_default();
            [
                found.access_key,
                found.secret_key,
                token,
                profile.region.unwrap(),
            ]
            .join(" ")
        };
        assert_eq!(shown(&[]), "A secret1=  eu-west-1");
        assert_eq!(shown(&[("AWS_PROFILE", "other")]), "B secret2 t us-west-2");
        let variables = [
            ("AWS_ACCESS_KEY_ID", "C"),
            ("AWS_SECRET_ACCESS_KEY", "secret3"),
            ("AWS_REGION", "r"),
        ];
        assert_eq!(shown(&variables), "C secret3  r");
        // A variable alone is no pair.
        assert_eq!(
            shown(&[("AWS_ACCESS_KEY_ID", "C")]),
            "A secret1=  eu-west-1"
        );
        assert!(find(&[("AWS_PROFILE", "absent")]).is_err());
    }
}
