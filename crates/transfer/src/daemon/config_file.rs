//! A daemon's options from a file: TOML with the names of the options of `longhaul serve`.
//!
//! ```toml
//! listen = "0.0.0.0:4960"
//! principals = "/etc/longhaul/principals.toml"
//! allow-clear = true
//! allow-dial = ["dtn9.example.org"]
//! ```

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_system::named_files::kept_to_read;
use longhaul_system::toml_errors;
use toml::{Table, Value};

/// Maximum size of the file in bytes.
const MAXIMUM_FILE_BYTES: u64 = 1 << 20;

/// Options that a file cannot contain.
const OF_COMMAND_LINE: [&str; 4] = ["config", "check", "print-ready", "help"];

/// Returns a command line with the options of its `--config` file before its own, so that its own
/// take precedence. Other command lines stay unchanged.
///
/// # Errors
///
/// The file cannot be read, or is invalid.
pub fn with_config(line: Vec<OsString>) -> Result<Vec<OsString>, String> {
    if line.get(1).map(OsString::as_os_str) != Some(OsStr::new("serve")) {
        return Ok(line);
    }
    let Some(file) = named(&line) else {
        return Ok(line);
    };
    let shown = Path::new(&file).display().to_string();
    let text = read(Path::new(&file)).map_err(|error| format!("{shown}: {error}"))?;
    let options = options_of(&text).map_err(|fault| format!("{shown}: {fault}"))?;
    let mut whole = line;
    whole.splice(2..2, options);
    Ok(whole)
}

/// Returns the value of `--config`.
fn named(line: &[OsString]) -> Option<OsString> {
    let mut words = line.iter().skip(2);
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().cloned();
        }
        if let Some(file) = word.as_bytes().strip_prefix(b"--config=") {
            return Some(OsStr::from_bytes(file).to_owned());
        }
    }
    None
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let opened = kept_to_read(file)?;
    opened
        .take(MAXIMUM_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAXIMUM_FILE_BYTES {
        return Err(std::io::Error::other("the file is too large"));
    }
    Ok(text)
}

/// Returns the options of a file as words of a command line.
fn options_of(text: &str) -> Result<Vec<OsString>, String> {
    let table: Table =
        toml::from_str(text).map_err(|error| toml_errors::in_one_line(text, &error))?;
    let mut words = Vec::new();
    for (key, value) in table {
        let is_name = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        if !is_name || key.starts_with('-') || OF_COMMAND_LINE.contains(&key.as_str()) {
            return Err(format!("\"{key}\" is no option for a file"));
        }
        let option = |value: String| OsString::from(format!("--{key}={value}"));
        match &value {
            Value::Boolean(true) => words.push(format!("--{key}").into()),
            Value::Boolean(false) => {}
            // An option takes its hosts as one value.
            Value::Array(values) if key == "allow-dial" => {
                let texts: Option<Vec<String>> = values.iter().map(text_of).collect();
                let texts = texts.ok_or_else(|| format!("\"{key}\" has an invalid value"))?;
                words.push(option(texts.join(",")));
            }
            Value::Array(values) => {
                for value in values {
                    let text = text_of(value);
                    words.push(option(
                        text.ok_or_else(|| format!("\"{key}\" has an invalid value"))?,
                    ));
                }
            }
            value => words.push(option(
                text_of(value).ok_or_else(|| format!("\"{key}\" has an invalid value"))?,
            )),
        }
    }
    Ok(words)
}

/// Returns the text of a string or number.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_file_precede_those_of_the_command_line() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("serve.toml");
        let text = "listen = \"[::]:1\"\nsessions = 8\nwrite = true\ndelete = false\n\
                    on-commit = [\"a=b c\", \"d=e\"]\nallow-dial = [\"x\", \"y\"]\n";
        std::fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let whole = with_config(line(&["longhaul", "serve", &config, "--sessions=9"])).unwrap();
        let (own, rest) = whole.split_at(whole.len() - 2);
        assert_eq!(rest, line(&[&config, "--sessions=9"]));
        let mut own = own.to_vec();
        own[2..].sort();
        let expected = [
            "longhaul",
            "serve",
            "--allow-dial=x,y",
            "--listen=[::]:1",
            "--on-commit=a=b c",
            "--on-commit=d=e",
            "--sessions=8",
            "--write",
        ];
        assert_eq!(own, line(&expected));
        let other = line(&["longhaul", "cp", &config]);
        assert_eq!(with_config(other.clone()), Ok(other));
    }

    #[test]
    fn invalid_files_are_refused() {
        for text in [
            "x = [",
            "\"--a\" = 1",
            "config = \"x\"",
            "a = 1.5",
            "[table]\nx = 1",
        ] {
            assert!(options_of(text).is_err(), "{text}");
        }
    }
}
