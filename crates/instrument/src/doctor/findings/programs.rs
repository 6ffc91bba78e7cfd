//! Findings about the place for longhaul on the remote host, and its maximum running time
//! there.

use longhaul_units::ByteCount;

use super::super::host::HostFacts;
use super::{Finding, Known, Software, advice, bad, good};

/// Space in bytes for the binary and its copy during installation.
const WANTED_BYTES: u64 = 64_000_000;

/// Returns the obstacles to installing longhaul in its usual place. If it is installed
/// elsewhere, they are not problems.
pub(super) fn programs(far: &Known<HostFacts>, software: Option<&Known<Software>>) -> Vec<Finding> {
    let Ok(facts) = far else {
        // The host finding reports this.
        return Vec::new();
    };
    let is_there = matches!(software, Some(Ok(Software::Same)));
    let mut found = Vec::new();
    found.extend(cache(facts, is_there));
    found.extend(time(facts));
    found
}

fn cache(facts: &HostFacts, is_there: bool) -> Option<Finding> {
    let cache = facts.get("cache")?;
    let (text, may_fit) = obstacle(facts, cache)?;
    if is_there {
        return Some(good("programs", format!("{text}; longhaul is elsewhere")));
    }
    let runs_in = facts.get("runs_in").filter(|place| *place != cache);
    let remedy = match runs_in {
        Some(place) => format!("--install-remote puts longhaul into {place}, where programs run"),
        None => {
            "provide a directory there in which programs may run: set XDG_CACHE_HOME there to it, or \
                 name a binary in it with --remote-longhaul"
                .to_owned()
        }
    };
    Some(if may_fit {
        advice("programs", text, remedy)
    } else {
        bad("programs", text, remedy)
    })
}

/// Returns the obstacle to installing longhaul in the cache, and true if the installation
/// may nevertheless succeed.
fn obstacle(facts: &HostFacts, cache: &str) -> Option<(String, bool)> {
    let options = facts.get("cache_options").unwrap_or_default();
    if options.split(',').any(|option| option == "noexec") {
        let mount = facts.get("cache_mount").unwrap_or("its file system");
        let text = format!("programs cannot run in {cache}: {mount} is mounted noexec");
        return Some((text, false));
    }
    if facts.says("cache_writable") == Some(false) {
        return Some((format!("{cache} cannot be written"), false));
    }
    let room = facts.room_at("cache_room")?;
    let is_little = room.total > 0 && room.free < WANTED_BYTES;
    is_little.then(|| {
        (
            format!("{} are free for {cache}", ByteCount(room.free)),
            true,
        )
    })
}

/// Returns the limit of processor time, which login nodes often have.
fn time(facts: &HostFacts) -> Option<Finding> {
    let seconds: u64 = facts.get("cpu_seconds")?.parse().ok()?;
    Some(advice(
        "time",
        format!("the remote host ends a process after {seconds} s of processor time (ulimit -t)"),
        "copy to or from the site's data transfer node; an interrupted copy resumes with the \
         same command",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::host::FACT;
    use super::super::Weight;
    use super::*;

    fn found(lines: &str, software: Software) -> Vec<Finding> {
        let mut facts = HostFacts::default();
        for line in lines.lines() {
            facts.add_line(&format!("{FACT}{line}"));
        }
        programs(&Ok(facts), Some(&Ok(software)))
    }

    const NOEXEC: &str = "cache /h/u/.cache/longhaul\ncache_mount /h\n\
        cache_options rw,nosuid,noexec\ncache_writable yes\n";

    #[test]
    fn a_noexec_mount_is_named_with_a_place_that_works() {
        let lines = format!("{NOEXEC}runs_in /var/tmp/longhaul-7\n");
        let bad = &found(&lines, Software::Absent)[0];
        assert_eq!(bad.weight(), Weight::Problem);
        assert!(bad.text.contains("/h is mounted noexec"), "{bad:?}");
        assert!(bad.remedy().unwrap().contains("/var/tmp/longhaul-7"));
        let bad = &found(NOEXEC, Software::Absent)[0];
        assert!(bad.remedy().unwrap().contains("XDG_CACHE_HOME"));
        assert_eq!(found(&lines, Software::Same)[0].weight(), Weight::Good);
    }

    #[test]
    fn little_room_and_little_time_are_advice() {
        let lines = "cache /c\ncache_options rw\ncache_writable yes\nruns_in /v\n\
            cache_room q 5000 4900 100 98%\ncpu_seconds 600\n";
        let found = found(lines, Software::Absent);
        assert_eq!(found.len(), 2);
        assert!(found[0].text.contains("are free for /c"), "{found:?}");
        assert!(found[1].text.contains("600 s"), "{found:?}");
        assert!(found.iter().all(|one| one.weight() == Weight::Advice));
    }

    #[test]
    fn a_usable_cache_gives_no_finding() {
        let lines = "cache /c\ncache_options rw,relatime\ncache_writable yes\nruns_in /c\n\
            cache_room d 500000000 1 400000000 1%\ncpu_seconds unlimited\n";
        assert_eq!(found(lines, Software::Absent), []);
    }
}
