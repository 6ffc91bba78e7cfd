//! Formats a host profile as tables, with doubts.

use std::fmt::Write;

use longhaul_engine::benchmark::this_host;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::stats::{median, sorted};
use serde_json::Value;

use super::profile::HostProfile;

/// If repeated reads are this much faster than the first one, the data came from a cache
/// that the kernel does not control.
const CACHED_BENEATH: f64 = 1.5;

/// Maximum number of files that are named. More are counted.
const MOST_NAMED: usize = 4;

/// Formats the given sections.
pub fn text(profile: &HostProfile, sections: &[String]) -> String {
    let mut text = String::new();
    for name in sections {
        let section = profile.value_of(name);
        let about = &section["about"];
        match about["files"].as_array() {
            Some(files) if files.len() > MOST_NAMED => {
                let first = files[0].as_str().unwrap_or_default();
                let _ = write!(text, "codec {first} and {} more files", files.len() - 1);
            }
            _ => text.push_str(name),
        }
        if let Some(kind) = about["file_system"].as_str() {
            let options = about["mount_options"].as_str().unwrap_or_default();
            let _ = write!(text, ": {kind} ({options})");
        }
        if let Some(bytes) = about["sampled_bytes"].as_u64() {
            let _ = write!(text, ": {} sampled", longhaul_units::ByteCount(bytes));
        }
        text.push('\n');
        for (job, value) in section["jobs"].as_object().into_iter().flatten() {
            let _ = writeln!(text, "  {job:<48} {}", figures(value));
        }
        if let Some(asked) = about["layout"]["asked"].as_str() {
            let answer = about["layout"]["answer"].as_str();
            let _ = writeln!(
                text,
                "  layout by `{asked}`: {}",
                answer.unwrap_or("no answer")
            );
        }
        for (doubt, of) in doubts(section) {
            let _ = writeln!(text, "  doubt: {of}: {doubt}: {}", advice(&doubt));
        }
    }
    text
}

/// Returns a remedy that `bench` offers.
fn advice(doubt: &Doubt) -> String {
    match doubt {
        Doubt::FewRepetitions { .. } => {
            "--rounds 10 or more, with a sufficient --budget".to_owned()
        }
        Doubt::WarmUpCounted => {
            "a larger --budget: the first repetition of each is a warm-up".to_owned()
        }
        Doubt::CacheNotDisk { .. } => {
            "--size above the memory size; the rows with \"direct\" bypass the page cache"
                .to_owned()
        }
        other => other.advice(),
    }
}

/// Returns the samples without the warm-up, or the warm-up if it is the only one.
fn counted(job: &Value) -> &[Value] {
    let all = job["samples"].as_array().map_or(&[][..], Vec::as_slice);
    match all {
        [_, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

fn ratios(samples: &[Value], above: &str, below: &str) -> Vec<f64> {
    let ratio = |sample: &Value| Some(sample[above].as_f64()? / sample[below].as_f64()?);
    samples.iter().filter_map(ratio).collect()
}

/// Formats rate (GB/s or files/s), CPU cost and compression ratio.
fn figures(job: &Value) -> String {
    let samples = counted(job);
    let files = samples.iter().any(|s| s["files"].as_u64().unwrap_or(0) > 0);
    let (what, unit, scale) = if files {
        ("files", "files/s", 1.0)
    } else {
        ("bytes", "GB/s", 1e9)
    };
    let rates: Vec<f64> = ratios(samples, what, "wall_seconds");
    let ascending = sorted(&rates);
    let (Some(middle), Some(least), Some(most)) =
        (median(&rates), ascending.first(), ascending.last())
    else {
        return "no samples yet".to_owned();
    };
    let decimals = if files { 0 } else { 3 };
    let mut text = format!("{:.decimals$}", middle / scale);
    // A single sample has no range.
    if rates.len() > 1 {
        let (least, most) = (least / scale, most / scale);
        text += &format!(" ({least:.decimals$}–{most:.decimals$})");
    }
    let _ = write!(text, " {unit}");
    let cost = median(&ratios(samples, "cpu_seconds", what)).unwrap_or(0.0);
    let _ = if files {
        write!(text, ", CPU {:.0} µs a file", cost * 1e6)
    } else {
        write!(text, ", CPU {:.3} s/GB", cost * 1e9)
    };
    if let Some(ratio) = median(&ratios(samples, "bytes", "encoded_bytes")) {
        let back = median(&ratios(samples, "bytes", "decode_wall_seconds")).unwrap_or(0.0);
        let _ = write!(
            text,
            "; {ratio:.2} times smaller; decodes at {:.3} GB/s",
            back / 1e9
        );
    }
    if job["about"]["direct"] == true && samples.iter().any(|s| s["was_direct"] == false) {
        text += "; this file system does not support direct I/O";
    }
    let _ = write!(text, " (n = {})", samples.len());
    text
}

/// Returns doubts, each with the name of its job.
fn doubts(section: &Value) -> Vec<(Doubt, String)> {
    let mut doubts = Vec::new();
    let mut fewest = None;
    let memory = this_host::memory_bytes().unwrap_or(0);
    for (name, job) in section["jobs"].as_object().into_iter().flatten() {
        let all = job["samples"].as_array().map_or(0, Vec::len);
        if all == 1 {
            doubts.push((Doubt::WarmUpCounted, name.clone()));
        }
        let count = counted(job).len();
        fewest = Some(fewest.unwrap_or(count).min(count));
        if let Some(bytes) = cached(section, job, memory) {
            let doubt = Doubt::CacheNotDisk {
                bytes,
                memory_bytes: memory,
            };
            doubts.push((doubt, name.clone()));
        }
    }
    // Each kind of doubt is shown once, for the first job.
    let mut named: Vec<std::mem::Discriminant<Doubt>> = Vec::new();
    doubts.retain(|(doubt, _)| {
        let kind = std::mem::discriminant(doubt);
        let news = !named.contains(&kind);
        named.push(kind);
        news
    });
    for (doubt, of) in &mut doubts {
        let like = named
            .iter()
            .filter(|kind| **kind == std::mem::discriminant(doubt));
        let others = like.count() - 1;
        if others > 0 {
            *of += &format!(" and {others} more");
        }
    }
    if let Some(repetitions) = fewest.filter(|count| *count > 0 && *count < 10) {
        let repetitions = repetitions as u64;
        let doubt = Doubt::FewRepetitions { repetitions };
        doubts.push((doubt, "some of these".to_owned()));
    }
    doubts
}

/// Returns the bytes of a job that may have come from a cache or remained in one.
fn cached(section: &Value, job: &Value, memory: u64) -> Option<u64> {
    let bytes = job["about"]["file_bytes"].as_u64()?;
    let is_block = job["about"].get("direct").is_some();
    let in_memory = matches!(
        section["about"]["file_system"].as_str(),
        Some("tmpfs" | "ramfs")
    );
    let refused = counted(job)
        .iter()
        .any(|sample| sample["was_direct"] == false);
    let read = job["about"]["kind"] == "read";
    // The page cache may ignore the advice to drop data. Written data are synced.
    let buffered = read && refused && bytes < memory;
    // The first read follows a write whose data were dropped from the page cache. If
    // later reads are much faster, a lower layer has a cache.
    let samples = job["samples"].as_array().map_or(&[][..], Vec::as_slice);
    let rates = ratios(samples, "bytes", "wall_seconds");
    let beneath = read && rates.len() > 2 && median(&rates[1..])? > CACHED_BENEATH * rates[0];
    (is_block && (in_memory || buffered || beneath)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(direct: bool, was_direct: bool, walls: &[f64]) -> Value {
        let samples: Vec<Value> = walls
            .iter()
            .map(|wall| {
                json!({ "bytes": 1_000_000_000, "files": 0, "wall_seconds": wall,
                        "cpu_seconds": 0.1, "was_direct": was_direct })
            })
            .collect();
        json!({ "about": { "kind": "read", "direct": direct, "file_bytes": 1 << 20 },
                "samples": samples })
    }

    #[test]
    fn the_warm_up_is_not_counted() {
        let text = figures(&job(true, true, &[9.0, 1.0, 2.0, 0.5]));
        assert!(
            text.starts_with("1.000 (0.500–2.000) GB/s, CPU 0.100 s/GB"),
            "{text}"
        );
        assert!(text.ends_with("(n = 3)"), "{text}");
        let refused = figures(&job(true, false, &[1.0]));
        assert!(refused.contains("not support direct I/O"), "{refused}");
        assert_eq!(figures(&json!({})), "no samples yet");
    }

    #[test]
    fn a_section_of_many_files_is_shown_as_a_count() {
        let shown = |count: usize| {
            let files: Vec<String> = (0..count).map(|number| format!("f{number}")).collect();
            let name = format!("codec {}", files.join(" "));
            let place = tempfile::tempdir().unwrap();
            let mut profile = HostProfile::open(&place.path().join("host.json")).unwrap();
            profile.describe(
                &name,
                &json!({ "files": files, "sampled_bytes": 5_000_000 }),
            );
            text(&profile, &[name])
        };
        assert_eq!(shown(2), "codec f0 f1: 5.00 MB sampled\n");
        assert_eq!(shown(400), "codec f0 and 399 more files: 5.00 MB sampled\n");
    }

    #[test]
    fn caches_cause_a_doubt() {
        let kinds = |section: &Value| -> Vec<Doubt> {
            doubts(section)
                .into_iter()
                .map(|(doubt, _)| doubt)
                .collect()
        };
        let is_cache = |doubt: &Doubt| matches!(doubt, Doubt::CacheNotDisk { .. });
        let of = |job: Value| json!({ "about": { "file_system": "ext4" }, "jobs": { "a": job } });
        let steady = kinds(&of(job(true, true, &[1.0, 1.0, 1.1, 0.9])));
        assert_eq!(steady, [Doubt::FewRepetitions { repetitions: 3 }]);
        // Three cases: faster in the second read, through the page cache, and in memory.
        assert!(
            kinds(&of(job(true, true, &[1.0, 0.3, 0.3, 0.3])))
                .iter()
                .any(is_cache)
        );
        assert!(
            kinds(&of(job(false, false, &[1.0; 4])))
                .iter()
                .any(is_cache)
        );
        let memory = json!({ "about": { "file_system": "tmpfs" },
                             "jobs": { "a": job(true, true, &[1.0; 4]) } });
        assert!(kinds(&memory).iter().any(is_cache));
    }
}
