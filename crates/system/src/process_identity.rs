//! Identifies a process beyond its end: the boot, the process ID and the start time.

/// Returns the identity of this process, as one word.
pub fn own() -> Option<String> {
    of(std::process::id())
}

/// Returns the identity of the process with this ID, or `None` if it does not run.
fn of(process: u32) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses. See proc_pid_stat(5).
    let (_, fields) = status.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (state != "Z").then(|| format!("{}/{process}/{started}", boot.trim()))
}

/// True if the process with this identity still runs.
pub fn runs(identity: &str) -> bool {
    let process = identity.split('/').nth(1);
    let process = process.and_then(|process| process.parse().ok());
    process.and_then(of).as_deref() == Some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_recognized() {
        let own = own().unwrap();
        assert!(runs(&own));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let other = of(child.id()).unwrap();
        assert!(runs(&other) && other != own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!runs(&other));
        // Another process has this ID now.
        assert!(!runs(&format!("{own}1")));
        assert!(!runs("") && !runs("a/b/c"));
    }
}
