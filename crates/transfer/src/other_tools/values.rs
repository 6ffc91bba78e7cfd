//! Recognises the values of options of scp and rclone by their form.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// True if a file of this name exists.
pub fn is_there(word: &OsStr) -> bool {
    fs::symlink_metadata(word).is_ok()
}

/// True if a word has digits only, like a port.
pub fn is_number(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// True if a word has the form NAME=VALUE or "NAME VALUE".
pub fn is_setting(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let name = bytes.iter().take_while(|byte| byte.is_ascii_alphabetic());
    let end = name.count();
    end > 2 && matches!(bytes.get(end), Some(b'=' | b' '))
}

/// True if a word is a cipher of ssh, or a list of ciphers.
pub fn is_cipher(word: &OsStr) -> bool {
    let Some(text) = word.to_str() else {
        return false;
    };
    let ends = ["-cbc", "-ctr", "-gcm@openssh.com", "-poly1305@openssh.com"];
    let known = ["blowfish", "3des", "arcfour"];
    text.split(',')
        .all(|name| known.contains(&name) || ends.iter().any(|end| name.ends_with(end)))
}

/// True if a word is a time span as rclone writes it, such as 500ms or 1m30s.
pub fn is_span(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let unit = |byte: &u8| matches!(byte, b's' | b'm' | b'h' | b'd');
    bytes.first().is_some_and(u8::is_ascii_digit)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_digit() || unit(byte) || *byte == b'.')
}

/// True if a word is the path of an executable file.
pub fn is_program(word: &OsStr) -> bool {
    let executable = |status: fs::Metadata| status.permissions().mode() & 0o111 != 0;
    fs::metadata(word).is_ok_and(|status| status.is_file() && executable(status))
}

/// True if a word is the path of an sftp server.
pub fn is_server(word: &OsStr) -> bool {
    word.as_bytes().ends_with(b"sftp-server")
}

/// True if scp takes a word for a path at another host.
pub fn is_scp_path(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let slash = bytes.iter().position(|byte| *byte == b'/');
    colon.is_some_and(|colon| slash.is_none_or(|slash| colon < slash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_distinguished_from_paths() {
        let tells = |tells: fn(&OsStr) -> bool, word: &str| tells(OsStr::new(word));
        assert!(tells(is_number, "22") && !tells(is_number, "./22") && !tells(is_number, ""));
        assert!(tells(is_setting, "Port=22") && tells(is_setting, "User x"));
        assert!(!tells(is_setting, "a/b=c") && !tells(is_setting, "x=1"));
        assert!(tells(is_cipher, "aes128-ctr,3des") && !tells(is_cipher, "data"));
        assert!(tells(is_span, "1m30s") && !tells(is_span, "1x") && !tells(is_span, "s"));
        assert!(tells(is_program, "/bin/sh") && !tells(is_program, "/"));
        assert!(tells(is_scp_path, "h:p") && !tells(is_scp_path, "./h:p"));
        assert!(tells(is_server, "/usr/lib/sftp-server"));
    }
}
