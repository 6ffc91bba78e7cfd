//! The host profile: one JSON file, rewritten after each sample, so that a stopped run
//! can resume (FORMAT.md, "Host profiles").

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use longhaul_system::named_files::{Older, to_write};
use serde_json::{Value, json};

use super::BenchError;

/// Version of the file format.
const SCHEMA: u64 = 1;

/// Maximum size of a profile in bytes. A larger file is not a host profile.
const MOST_BYTES: u64 = 64 << 20;

/// A host profile in memory.
pub struct HostProfile {
    path: PathBuf,
    value: Value,
}

impl HostProfile {
    /// Reads the profile, or creates an empty one if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a host profile.
    pub fn open(path: &Path) -> Result<HostProfile, BenchError> {
        let local = |text: String| BenchError::Local(format!("{}: {text}", path.display()));
        let value = match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                json!({ "schema": SCHEMA, "kind": "host", "host": {}, "sections": {} })
            }
            Err(error) => return Err(local(error.to_string())),
            Ok(status) if status.len() > MOST_BYTES => {
                return Err(local(
                    "it is not a host profile: name another file with -o".to_owned(),
                ));
            }
            Ok(_) => {
                let text = fs::read_to_string(path).map_err(|error| local(error.to_string()))?;
                let value: Value = serde_json::from_str(&text).unwrap_or_default();
                if !is_profile(&value) {
                    let text =
                        "it is not a host profile of this version: name another file with -o";
                    return Err(local(text.to_owned()));
                }
                value
            }
        };
        Ok(HostProfile {
            path: path.to_owned(),
            value,
        })
    }

    /// Sets the description of this host. If the file is from another host or kernel, its
    /// samples are discarded.
    pub fn set_host(&mut self, facts: Value) {
        let same = |key: &str| self.value["host"][key] == facts[key];
        let before = self.value["host"].get("name").is_some();
        if before && !(same("name") && same("kernel") && same("version")) {
            self.value["sections"] = json!({});
        }
        self.value["host"] = facts;
    }

    /// Discards the samples of a section.
    pub fn forget(&mut self, section: &str) {
        if let Some(sections) = self.value["sections"].as_object_mut() {
            sections.remove(section);
        }
    }

    /// Sets the description of a section.
    pub fn describe(&mut self, section: &str, about: &Value) {
        self.value["sections"][section]["about"] = about.clone();
    }

    /// Returns the number of samples of a job.
    pub fn count(&self, section: &str, job: &str) -> usize {
        self.samples(section, job).len()
    }

    /// Returns the samples of a job; the first one is the warm-up.
    pub fn samples(&self, section: &str, job: &str) -> &[Value] {
        let job = &self.value["sections"][section]["jobs"][job];
        job["samples"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns a section in the file's format.
    pub fn value_of(&self, section: &str) -> &Value {
        &self.value["sections"][section]
    }

    /// Adds a sample.
    pub fn add(&mut self, section: &str, job: &str, about: &Value, sample: Value) {
        let job = &mut self.value["sections"][section]["jobs"][job];
        job["about"] = about.clone();
        match job["samples"].as_array_mut() {
            Some(samples) => samples.push(sample),
            None => job["samples"] = json!([sample]),
        }
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn save(&self) -> Result<(), BenchError> {
        let local =
            |error: std::io::Error| BenchError::Local(format!("{}: {error}", self.path.display()));
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = to_write(&beside, Older::Goes).and_then(|mut file| {
            file.write_all(format!("{:#}\n", self.value).as_bytes())?;
            fs::rename(&beside, &self.path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            local(error)
        })
    }

    /// Returns the profile as JSON.
    pub fn to_json(&self) -> String {
        self.value.to_string()
    }
}

/// True if all values that are indexed later are objects. Indexing another value would
/// panic.
fn is_profile(value: &Value) -> bool {
    let objects = |value: &Value| value.as_object().map(|map| map.values().cloned().collect());
    let sections: Option<Vec<Value>> = objects(&value["sections"]);
    let jobs_fit = |section: &Value| {
        let jobs = &section["jobs"];
        section.is_object()
            && (jobs.is_null()
                || jobs
                    .as_object()
                    .is_some_and(|jobs| jobs.values().all(Value::is_object)))
    };
    value["kind"] == "host"
        && value["schema"] == SCHEMA
        && value["host"].is_object()
        && sections.is_some_and(|sections| sections.iter().all(jobs_fit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_kept_for_this_host_and_discarded_for_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.json");
        let facts = |kernel: &str| json!({ "name": "a", "kernel": kernel, "version": "1" });
        let mut profile = HostProfile::open(&path).unwrap();
        profile.set_host(facts("6.18"));
        profile.describe("tls", &json!({ "over": "loopback" }));
        profile.add("tls", "TLS × 1", &json!({}), json!({ "bytes": 5 }));
        profile.save().unwrap();
        let mut again = HostProfile::open(&path).unwrap();
        again.set_host(facts("6.18"));
        assert_eq!(again.count("tls", "TLS × 1"), 1);
        assert_eq!(again.value_of("tls")["about"]["over"], "loopback");
        again.forget("tls");
        assert_eq!(again.count("tls", "TLS × 1"), 0);
        let mut other = HostProfile::open(&path).unwrap();
        other.set_host(facts("6.19"));
        assert_eq!(other.count("tls", "TLS × 1"), 0);
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "no other file remains");
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thesis.json");
        let whole = r#""schema": 1, "kind": "host", "host": {}"#;
        for text in [
            "{\"chapter\": 1}".to_owned(),
            "no JSON".to_owned(),
            format!("{{{whole}, \"sections\": 3}}"),
            format!("{{{whole}, \"sections\": {{\"tls\": 3}}}}"),
            format!("{{{whole}, \"sections\": {{\"tls\": {{\"jobs\": [1]}}}}}}"),
        ] {
            fs::write(&path, &text).unwrap();
            let Err(error) = HostProfile::open(&path) else {
                panic!("accepted as a profile: {text}");
            };
            assert!(error.to_string().contains("-o"), "{error}");
        }
        fs::write(&path, format!("{{{whole}, \"sections\": {{}}}}")).unwrap();
        assert!(HostProfile::open(&path).is_ok());
    }
}
