//! Passwords in the file `~/.netrc`, as the program ftp reads them.

/// A login of a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// Password. `None` if the file contains none.
    pub password: Option<String>,
}

/// Returns the login for a host, and for a user if one is named. The first entry that matches is
/// used; an entry `default` matches all hosts. Macros and accounts are ignored.
pub fn find(text: &str, host: &str, user: Option<&str>) -> Option<Login> {
    let mut words = text.split_ascii_whitespace();
    let mut is_host = false;
    let mut found: Option<Login> = None;
    let matches = |login: &Login| user.is_none_or(|user| user == login.user);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if found.as_ref().is_some_and(matches) {
                    return found;
                }
                found = None;
                is_host = word == "default" || words.next() == Some(host);
            }
            "login" => {
                let user = words.next()?.to_owned();
                let password = None;
                found = is_host.then_some(Login { user, password });
            }
            "password" => {
                let password = words.next()?.to_owned();
                if let Some(login) = &mut found {
                    login.password = Some(password);
                }
            }
            "account" => {
                words.next();
            }
            // The rest of the file may be a macro.
            "macdef" => break,
            _ => {}
        }
    }
    found.filter(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "machine a login u password p\nmachine b\n  login v\n  password q\n\
        machine b login w password r account x\ndefault login d password s\n";

    fn found(host: &str, user: Option<&str>) -> Option<(String, Option<String>)> {
        find(TEXT, host, user).map(|login| (login.user, login.password))
    }

    #[test]
    fn logins_are_found_by_host_and_user() {
        let login = |user: &str, password: &str| Some((user.into(), Some(password.into())));
        assert_eq!(found("a", None), login("u", "p"));
        assert_eq!(found("b", None), login("v", "q"));
        assert_eq!(found("b", Some("w")), login("w", "r"));
        assert_eq!(found("a", Some("w")), None);
        assert_eq!(found("c", None), login("d", "s"));
        assert!(find("", "a", None).is_none());
        assert!(find("machine a password p", "a", None).is_none());
        assert!(find("machine a login", "a", None).is_none());
    }
}
