//! Facts about a host from the output of its shell.

use longhaul_instrument::doctor::host::HostFacts;

/// Checks that for any lines, each parsed value is a number in its range or absent.
pub fn host_facts(bytes: &[u8]) {
    let mut facts = HostFacts::default();
    for line in String::from_utf8_lossy(bytes).lines() {
        facts.add_line(line);
    }
    assert!(
        facts
            .clock()
            .is_none_or(|clock| clock.is_finite() && clock >= 0.0)
    );
    let _ = (facts.space(), facts.inodes(), facts.says("writable"));
    let _ = (
        facts.number("net.ipv4.tcp_wmem", 2),
        facts.number("open_files", 0),
    );
    for name in ["path", "system", "ssh_connection"] {
        if let Some(value) = facts.get(name) {
            assert!(!value.is_empty() && !value.contains(char::is_control));
        }
    }
}
