//! Sites: hosts that see the same files, and how a worker starts on each. The file of sites names
//! them (docs/cluster.md).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_net::config_directory::config_directory;
use longhaul_system::toml_errors::in_one_line;
use longhaul_transfer::ports::Ports;
use longhaul_transfer::stop::{Exit, Stop};
use serde::Deserialize;

/// Maximum size of the file of sites in bytes.
const MAXIMUM_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of hosts of a site.
const MOST_HOSTS: usize = 1000;

/// Placeholder for the host in a command.
const HOST: &str = "{host}";

/// The file of sites.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    site: BTreeMap<String, Written>,
}

/// A site as in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    hosts: Vec<WrittenHost>,
    launch: Option<Vec<String>>,
    longhaul: Option<String>,
    ports: Option<Ports>,
}

/// A host as in the file: its login, or its login and its address for data.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenHost {
    Login(String),
    Full(FullHost),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullHost {
    host: String,
    address: Option<String>,
}

/// A host of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHost {
    /// Login: `[USER@]HOST`.
    pub login: String,
    /// Name or address to which hosts of the other site connect.
    pub address: String,
}

impl SiteHost {
    /// Returns the address on which the host listens if it serves only its own processes.
    pub fn loopback(&self) -> Option<IpAddr> {
        let address: Option<IpAddr> = self.address.parse().ok();
        address.filter(IpAddr::is_loopback)
    }
}

/// A site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Name in the file of sites.
    pub name: String,
    /// Hosts of the site, 1 or more.
    pub hosts: Vec<SiteHost>,
    /// Command that starts a shell command on a host.
    pub launch: Vec<String>,
    /// Path of longhaul on the hosts.
    pub longhaul: String,
    /// Ports on which the hosts listen; `None`: any port.
    pub ports: Option<Ports>,
}

impl Site {
    /// Returns the command that starts a worker on a host.
    pub fn worker(&self, host: &SiteHost, root: &Path) -> Vec<OsString> {
        let words = self.launch.iter();
        let mut command: Vec<OsString> = words
            .map(|word| word.replace(HOST, &host.login).into())
            .collect();
        let mut shell = quoted(OsStr::new(&self.longhaul));
        shell.push(" worker --root ");
        shell.push(quoted(root.as_os_str()));
        command.push(shell);
        command
    }
}

/// Quotes a word for a shell.
fn quoted(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => bytes.extend_from_slice(b"'\\''"),
            byte => bytes.push(byte),
        }
    }
    bytes.push(b'\'');
    OsStr::from_bytes(&bytes).to_owned()
}

/// Numbers of hosts that take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostCounts {
    /// All hosts of both sites.
    #[default]
    Auto,
    /// The first hosts of the source and of the destination.
    Fixed(usize, usize),
}

impl std::str::FromStr for HostCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<HostCounts, String> {
        if text == "auto" {
            return Ok(HostCounts::Auto);
        }
        let counts = text.split_once(':').map(|(m, n)| (m.parse(), n.parse()));
        match counts {
            Some((Ok(m @ 1..=MOST_HOSTS), Ok(n @ 1..=MOST_HOSTS))) => Ok(HostCounts::Fixed(m, n)),
            _ => Err("write SOURCES:DESTINATIONS, as 4:2, or auto".to_owned()),
        }
    }
}

impl HostCounts {
    /// Returns the hosts that take part at two sites.
    ///
    /// # Errors
    ///
    /// A site has fewer hosts.
    pub fn chosen<'a>(self, sites: [&'a Site; 2]) -> Result<[&'a [SiteHost]; 2], Stop> {
        let HostCounts::Fixed(sources, destinations) = self else {
            return Ok(sites.map(|site| &*site.hosts));
        };
        let first = |site: &'a Site, count: usize| {
            site.hosts.get(..count).ok_or_else(|| {
                let has = site.hosts.len();
                usage(format!("--hosts: site {} has only {has} hosts", site.name))
            })
        };
        Ok([first(sites[0], sources)?, first(sites[1], destinations)?])
    }
}

/// A path at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePath {
    /// The site.
    pub site: Site,
    /// Absolute path at all hosts of the site.
    pub path: PathBuf,
}

impl SitePath {
    /// Returns the path as the user wrote it.
    pub fn shown(&self) -> String {
        format!("{}:{}", self.site.name, self.path.display())
    }
}

fn usage(text: impl Into<String>) -> Stop {
    Stop::new(Exit::Usage, text)
}

/// Finds paths at sites. `file` is the file of sites; `None`: `sites.toml` in the configuration
/// directory.
///
/// # Errors
///
/// The file is invalid, or does not name a site.
pub fn find(file: Option<&Path>, places: &[&OsStr]) -> Result<Vec<SitePath>, Stop> {
    let usual = || config_directory().map(|directory| directory.join("sites.toml"));
    let file = match file {
        Some(file) => file.to_owned(),
        None => usual().map_err(|error| Stop::because(Exit::Local, error))?,
    };
    let named = file.display();
    let text = read(&file).map_err(|error| {
        usage(format!(
            "cannot read the file of sites {named}: {error}; docs/cluster.md shows one"
        ))
    })?;
    let sites = parse(&text).map_err(|error| usage(format!("{named}: {error}")))?;
    places
        .iter()
        .map(|place| at(&sites, place, &file))
        .collect()
}

fn read(file: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let opened = std::fs::File::open(file)?;
    opened.take(MAXIMUM_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn at(sites: &[Site], place: &OsStr, file: &Path) -> Result<SitePath, Stop> {
    let shown = place.to_string_lossy();
    let bytes = place.as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':');
    let (name, path) = bytes.split_at(colon.unwrap_or(bytes.len()));
    let path = Path::new(OsStr::from_bytes(path.get(1..).unwrap_or_default()));
    if !path.is_absolute() {
        let text = format!("{shown}: with --cluster, write SITE:/PATH, with an absolute path");
        return Err(usage(text));
    }
    let site = sites.iter().find(|site| site.name.as_bytes() == name);
    let site = site.ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        usage(format!("{} has no [site.{name}]: add it", file.display()))
    })?;
    Ok(SitePath {
        site: site.clone(),
        path: path.to_owned(),
    })
}

/// Parses the text of a file of sites.
fn parse(text: &str) -> Result<Vec<Site>, String> {
    let file: File = toml::from_str(text).map_err(|error| in_one_line(text, &error))?;
    file.site.into_iter().map(checked).collect()
}

fn checked((name, written): (String, Written)) -> Result<Site, String> {
    let hosts: Vec<SiteHost> = written.hosts.into_iter().map(host_of).collect();
    if !(1..=MOST_HOSTS).contains(&hosts.len()) {
        return Err(format!("[site.{name}]: name 1 to {MOST_HOSTS} hosts"));
    }
    // A login that begins with a hyphen would be an option of ssh.
    let is_bad = |host: &&SiteHost| host.login.is_empty() || host.login.starts_with('-');
    if let Some(host) = hosts.iter().find(is_bad) {
        return Err(format!("[site.{name}]: \"{}\" is no host", host.login));
    }
    let launch = written.launch.unwrap_or_else(|| {
        let usual = ["ssh", "-T", "-oBatchMode=yes", HOST];
        usual.map(str::to_owned).to_vec()
    });
    if launch.is_empty() {
        return Err(format!("[site.{name}]: launch is empty: name a command"));
    }
    Ok(Site {
        name,
        hosts,
        launch,
        longhaul: written.longhaul.unwrap_or_else(|| "longhaul".to_owned()),
        ports: written.ports,
    })
}

fn host_of(written: WrittenHost) -> SiteHost {
    let (login, address) = match written {
        WrittenHost::Login(host) => (host, None),
        WrittenHost::Full(full) => (full.host, full.address),
    };
    let name = login.rsplit_once('@').map_or(&*login, |(_, name)| name);
    SiteHost {
        address: address.unwrap_or_else(|| name.to_owned()),
        login,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[site.alps]
hosts = ["me@n1", { host = "n2", address = "10.0.0.2" }]
ports = "50000-50009"

[site.here]
hosts = [{ host = "a", address = "127.0.0.1" }]
launch = ["sh", "-c"]
longhaul = "/opt/long haul"
"#;

    #[test]
    fn a_file_of_sites_names_hosts_and_commands() {
        let sites = parse(FILE).unwrap();
        let found = at(&sites, OsStr::new("alps:/data/it's"), Path::new("f")).unwrap();
        let hosts = &found.site.hosts;
        assert_eq!(hosts[0].address, "n1");
        assert_eq!(hosts[1].address, "10.0.0.2");
        let command = found.site.worker(&hosts[0], &found.path);
        let last = command.last().unwrap().to_str().unwrap();
        assert_eq!(command[3], "me@n1");
        assert_eq!(last, r"'longhaul' worker --root '/data/it'\''s'");
        let here = at(&sites, OsStr::new("here:/"), Path::new("f"))
            .unwrap()
            .site;
        assert!(here.hosts[0].loopback().is_some());
        assert_eq!(here.worker(&here.hosts[0], Path::new("/"))[1], "-c");
    }

    #[test]
    fn the_first_hosts_of_each_site_take_part() {
        let sites = parse(FILE).unwrap();
        let sites = [&sites[0], &sites[1]];
        let chosen = |text: &str| text.parse::<HostCounts>().unwrap().chosen(sites);
        assert_eq!(chosen("auto").unwrap().map(<[_]>::len), [2, 1]);
        assert_eq!(chosen("1:1").unwrap().map(<[_]>::len), [1, 1]);
        assert!(chosen("1:2").is_err());
        for bad in ["", "1", "0:1", "1:0", "1:2000", "a:b", "1:1:1"] {
            assert!(bad.parse::<HostCounts>().is_err(), "{bad}");
        }
    }

    #[test]
    fn invalid_sites_and_paths_are_refused() {
        for bad in [
            "[site.a]\nhosts = []",
            "[site.a]\nhosts = [\"-oProxyCommand=x\"]",
            "[site.a]\nhosts = [\"n\"]\nlaunch = []",
            "[site.a]\nhosts = [\"n\"]\nother = 1",
            "[site.a]\nhosts = [\"n\"]\nports = \"9-1\"",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let sites = parse(FILE).unwrap();
        for bad in ["alps:data", "alps", "/data", "other:/data"] {
            assert!(
                at(&sites, OsStr::new(bad), Path::new("f")).is_err(),
                "{bad}"
            );
        }
    }
}
