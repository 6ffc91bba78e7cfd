use super::*;
use crate::identity::Identity;
use std::fs;

fn parse(text: &str) -> Result<Principals, PrincipalsError> {
    Principals::parse(text, Path::new("principals.toml"))
}

fn fault(text: &str) -> Fault {
    match parse(text) {
        Err(PrincipalsError::Meaning { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

struct Example {
    principals: Principals,
    token: Token,
    key: Fingerprint,
}

fn example() -> Example {
    let token = Token::generate().unwrap();
    let key = Identity::ephemeral().unwrap().fingerprint();
    let text = format!(
        r#"
        [[principal]]
        name = "alice"
        token = "{}"
        [[principal.root]]
        at = "/"
        path = "/srv/all"
        rights = ["read"]
        [[principal.root]]
        at = "/data/own/"
        path = "/srv/own"
        rights = ["read", "write", "measure"]
        [[principal]]
        name = "bob"
        certificates = ["{key}"]
        [[principal.root]]
        at = "/data"
        path = "/srv/data"
        rights = ["write"]
        "#,
        token.hash().unwrap()
    );
    Example {
        principals: parse(&text).unwrap(),
        token,
        key,
    }
}

#[test]
fn tokens_prove_their_principal_only() {
    let Example {
        principals, token, ..
    } = example();
    let alice = principals.by_token("alice", &token, 0).unwrap().0;
    assert_eq!(alice.name(), "alice");
    let wrong = Token::generate().unwrap();
    for (name, token) in [("alice", &wrong), ("bob", &token), ("eve", &token)] {
        let refused = principals
            .by_token(name, token, 0)
            .map(|(found, _)| found.name());
        assert_eq!(refused, Err(TokenRefused::Unknown), "{name}");
    }
}

#[test]
fn certificates_prove_their_principal_only() {
    let Example {
        principals, key, ..
    } = example();
    let other = Identity::ephemeral().unwrap().fingerprint();
    let by = |name, key| principals.by_certificate(name, key).map(Principal::name);
    assert_eq!(by(None, &key), Ok("bob"));
    assert_eq!(by(Some("bob"), &key), Ok("bob"));
    assert_eq!(by(Some("alice"), &key), Err(NotAuthenticated));
    assert_eq!(by(None, &other), Err(NotAuthenticated));
}

#[test]
fn the_longest_root_counts() {
    let Example {
        principals, token, ..
    } = example();
    let alice = principals.by_token("alice", &token, 0).unwrap().0;
    let show = |url: &str| {
        let r = alice.resolve(url.as_bytes()).unwrap();
        let rest = r.rest.as_ref().map_or(&b""[..], TreePath::as_bytes);
        let rest = String::from_utf8_lossy(rest).into_owned();
        (r.root.to_str().unwrap(), rest, r.rights.write)
    };
    assert_eq!(show("/"), ("/srv/all", "".into(), false));
    assert_eq!(show("/data"), ("/srv/all", "data".into(), false));
    assert_eq!(show("/data/own"), ("/srv/own", "".into(), true));
    assert_eq!(show("//data//own/x//y/"), ("/srv/own", "x/y".into(), true));
    assert_eq!(
        show("/data/owner"),
        ("/srv/all", "data/owner".into(), false)
    );
    assert!(alice.resolve(b"/data/own/x/").unwrap().is_directory);
    assert!(!alice.resolve(b"/data/own/x").unwrap().is_directory);
    assert!(alice.may_measure());
}

#[test]
fn paths_outside_of_all_roots_are_refused_equally() {
    let Example {
        principals, key, ..
    } = example();
    let bob = principals.by_certificate(None, &key).unwrap();
    for url in ["/", "/etc", "/database", "/dat"] {
        let refused = bob.resolve(url.as_bytes());
        assert_eq!(refused, Err(ResolveError::NotPermitted), "{url}");
    }
    assert!(!bob.may_measure());
}

#[test]
fn hostile_paths_are_refused() {
    let Example {
        principals, key, ..
    } = example();
    let bob = principals.by_certificate(None, &key).unwrap();
    let long = [b"/data/".to_vec(), vec![b'a'; 100_000]].concat();
    let hostile: [&[u8]; 6] = [
        b"/data/..",
        b"/data/../../etc",
        b"/data/./x",
        b"/..",
        b"/data/a\0b",
        &long,
    ];
    for url in hostile {
        assert!(
            matches!(bob.resolve(url), Err(ResolveError::Path(_))),
            "{}",
            String::from_utf8_lossy(&url[..url.len().min(30)])
        );
    }
    assert_eq!(bob.resolve(b""), Err(ResolveError::Relative));
    assert_eq!(bob.resolve(b"data"), Err(ResolveError::Relative));
    // Names need not be valid UTF-8.
    assert!(bob.resolve(b"/data/\xff").is_ok());
}

#[test]
fn faults_are_named() {
    let key = Identity::ephemeral().unwrap().fingerprint();
    let entry = |name: &str, more: &str| {
        format!("[[principal]]\nname = \"{name}\"\ncertificates = [\"{key}\"]\n{more}")
    };
    let root = |at: &str, path: &str, rights: &str| {
        entry(
            "a",
            &format!("[[principal.root]]\nat = \"{at}\"\npath = \"{path}\"\nrights = [{rights}]\n"),
        )
    };
    assert_eq!(fault(&entry("a b", "")), Fault::Name);
    assert_eq!(fault(&entry("", "")), Fault::Name);
    assert_eq!(fault("[[principal]]\nname = \"a\""), Fault::NoCredential);
    let twice = entry("a", "") + &entry("a", "");
    assert_eq!(fault(&twice), Fault::DuplicateName);
    let shared = entry("a", "") + &entry("b", "");
    assert_eq!(fault(&shared), Fault::DuplicateCertificate(key));
    for at in ["", "data", "/a/../b", "//", "/a//b"] {
        assert_eq!(fault(&root(at, "/x", "\"read\"")), Fault::At(at.into()));
    }
    assert_eq!(fault(&root("/", "x", "\"read\"")), Fault::Path("x".into()));
    assert_eq!(fault(&root("/", "/x", "")), Fault::NoRights("/".into()));
    // The rights of a root apply to all paths within it, so fewer rights there would have no
    // effect.
    let within = |at: &str, path: &str, rights: &str| {
        root("/", "/srv", "\"read\", \"write\"")
            + &format!(
                "[[principal.root]]\nat = \"{at}\"\npath = \"{path}\"\nrights = [{rights}]\n"
            )
    };
    let narrower = Fault::Narrower {
        at: "/old".into(),
        wider: "/".into(),
    };
    assert_eq!(fault(&within("/old", "/srv/old", "\"read\"")), narrower);
    for (at, path, rights) in [
        ("/old", "/elsewhere", "\"read\""),
        ("/old", "/srv/older", "\"read\""),
        ("/old", "/srv/old", "\"read\", \"write\", \"measure\""),
    ] {
        assert!(parse(&within(at, path, rights)).is_ok(), "{at} {path}");
    }
    let plain = "[[principal]]\nname = \"a\"\ntoken = \"secret\"";
    assert!(matches!(fault(plain), Fault::Credential(text) if !text.contains("secret")));
}

/// Commands after a commit and filters of contents have separate lists.
#[test]
fn commands_are_allowed_for_the_use_of_their_list() {
    let token = Token::generate().unwrap().hash().unwrap();
    let file = |rights: &str, lists: &str, inner: &str| {
        format!(
            "[commands]\ningest = \"one\"\nunpack = \"two\"\nempty = \"\"\n\
             [[principal]]\nname = \"a\"\ntoken = \"{token}\"\n\
             [[principal.root]]\nat = \"/\"\npath = \"/srv\"\nrights = [{rights}]\n{lists}\n{inner}"
        )
    };
    let lists = "on-commit = [\"ingest\"]\nfilter-cmd = [\"unpack\", \"ingest\"]";
    let text = file("\"write\"", lists, "");
    let home = tempfile::tempdir().unwrap();
    let told = home.path().join("principal");
    fs::write(&told, parse(&text).unwrap().principals[0].written()).unwrap();
    fs::set_permissions(&told, fs::Permissions::from_mode(0o600)).unwrap();
    let again = Principal::read_back(&told).unwrap();
    for principal in [&parse(&text).unwrap().principals[0], &again] {
        let commands = principal.resolve(b"/x").unwrap().commands;
        let names = |list: &BTreeMap<String, String>| list.clone().into_iter().collect::<Vec<_>>();
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(names(&commands.on_commit), [pair("ingest", "one")]);
        let filters = [pair("ingest", "one"), pair("unpack", "two")];
        assert_eq!(names(&commands.filters), filters);
    }
    for (list, name) in [("on-commit", "other"), ("filter-cmd", "empty")] {
        let text = file("\"write\"", &format!("{list} = [\"{name}\"]"), "");
        assert_eq!(fault(&text), Fault::Command("/".into(), name.into()));
    }
    // Files that are read may be filtered too.
    let text = file("\"read\"", "on-commit = [\"ingest\"]", "");
    assert_eq!(fault(&text), Fault::Alone("/".into(), "on-commit"));
    assert!(parse(&file("\"read\"", "filter-cmd = [\"ingest\"]", "")).is_ok());
    // A root within it without these commands would have no effect.
    let inner = "[[principal.root]]\nat = \"/in\"\npath = \"/srv/in\"\nrights = [\"write\"]\n\
                 on-commit = [\"ingest\"]";
    let text = file("\"write\"", lists, inner);
    assert!(matches!(fault(&text), Fault::Narrower { .. }));
}

#[test]
fn unknown_fields_are_no_silent_rights() {
    for text in [
        "[[principals]]",
        "[[principal]]\nname = \"a\"\nadmin = true",
        "x",
    ] {
        assert!(matches!(parse(text), Err(PrincipalsError::Syntax { .. })));
    }
    assert!(parse("").unwrap().principals.is_empty());
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("principals.toml");
    fs::write(&file, "").unwrap();
    let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    set(0o640);
    assert!(Principals::load(&file).is_ok());
    set(0o620);
    let error = Principals::load(&file).unwrap_err();
    assert!(error.to_string().contains("chmod go-w"), "{error}");
}

#[test]
fn tokens_of_a_principal_overlap_and_expire() {
    let [old, new] = [(); 2].map(|()| Token::generate().unwrap());
    let [old_hash, new_hash] = [&old, &new].map(|token| token.hash().unwrap());
    let root = "[[principal.root]]\nat = \"/\"\npath = \"/srv\"\nrights = [\"read\"]\n";
    let both = format!(
        "[[principal]]\nname = \"alice\"\ntokens = [\n\
         {{ hash = \"{old_hash}\", expires = 1970-01-01T00:01:40Z }},\n\
         {{ hash = \"{new_hash}\" }},\n]\n{root}"
    );
    let principals = parse(&both).unwrap();
    let by = |token: &Token, now| {
        let found = principals.by_token("alice", token, now);
        found.map(|(found, proof)| (found.name().to_owned(), proof))
    };
    let (_, proof) = by(&old, 99).unwrap();
    assert_eq!(by(&old, 100), Err(TokenRefused::Expired(100)));
    assert!(by(&new, i64::MAX).is_ok());
    assert!(principals.accepts("alice", &proof));
    let revoked = format!("[[principal]]\nname = \"alice\"\ntoken = \"{new_hash}\"\n{root}");
    let revoked = parse(&revoked).unwrap();
    assert!(!revoked.accepts("alice", &proof));
    let (_, kept) = by(&new, 0).unwrap();
    assert!(revoked.accepts("alice", &kept) && !revoked.accepts("bob", &kept));
    let invalid = both.replace("1970-01-01T00:01:40Z", "07:32:00");
    assert!(matches!(fault(&invalid), Fault::Credential(_)));
}

#[test]
fn limits_of_a_principal_are_checked() {
    let entry = |limits: &str| {
        format!(
            "[[principal]]\nname = \"a\"\ncertificates = [\"sha256:{}\"]\nlimits = {limits}\n",
            "A".repeat(43)
        )
    };
    let limits = |text: &str| parse(&entry(text)).unwrap().by_name("a").unwrap().limits();
    let found = limits("{ sessions = 3, memory = \"1MiB\" }");
    assert_eq!((found.sessions, found.streams), (Some(3), None));
    assert_eq!(found.memory.unwrap().0, 1 << 20);
    for wrong in ["{ sessions = 0 }", "{ memory = \"x\" }"] {
        assert!(matches!(fault(&entry(wrong)), Fault::Limit(_)), "{wrong}");
    }
    assert!(parse(&entry("{ session = 1 }")).is_err());
}
