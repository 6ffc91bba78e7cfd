//! Surveys a dataset without reading it: counts files and bytes below local paths, within a time
//! limit.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limits of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyLimits {
    /// Maximum time.
    pub time: Duration,
    /// Maximum number of entries.
    pub entries: u64,
}

/// Returns limits for interactive use: two seconds, or 200,000 entries.
impl Default for SurveyLimits {
    fn default() -> SurveyLimits {
        SurveyLimits {
            time: Duration::from_secs(2),
            entries: 200_000,
        }
    }
}

/// Result of a survey of some paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Survey {
    /// Number of files, estimated if [`Survey::is_whole`] is false.
    pub files: f64,
    /// Number of their bytes, likewise.
    pub bytes: f64,
    /// Number of files that were found.
    pub seen_files: u64,
    /// Number of bytes that were found.
    pub seen_bytes: u64,
    /// Number of directories that were listed.
    pub directories: u64,
    /// Number of directories and files that could not be read.
    pub failed: u64,
    /// True if all entries were counted.
    pub is_whole: bool,
}

/// Counts files and bytes below `paths` without following links. If a limit is reached, each
/// directory that was found and not listed counts as the average of the listed ones.
///
/// # Errors
///
/// Fails if one of `paths` itself cannot be read.
pub fn survey(paths: &[PathBuf], limits: SurveyLimits) -> io::Result<Survey> {
    survey_each(paths, limits, |_, _| ())
}

/// Like [`survey`], and passes each file and its size in bytes to `each`.
///
/// # Errors
///
/// The same as [`survey`].
pub fn survey_each(
    paths: &[PathBuf],
    limits: SurveyLimits,
    mut each: impl FnMut(PathBuf, u64),
) -> io::Result<Survey> {
    let until = Instant::now() + limits.time;
    let mut found = Survey::default();
    let mut waiting: VecDeque<PathBuf> = VecDeque::new();
    for path in paths {
        let status = fs::metadata(path).map_err(|error| named(path, &error))?;
        if status.is_dir() {
            waiting.push_back(path.clone());
        } else {
            found.seen_files += 1;
            found.seen_bytes += status.len();
            if status.is_file() {
                each(path.clone(), status.len());
            }
        }
    }
    let (files_before, bytes_before) = (found.seen_files, found.seen_bytes);
    let mut entries = 0;
    // Breadth first, because directories at one depth are more alike than those of one branch.
    while let Some(directory) = waiting.pop_front() {
        if entries >= limits.entries || Instant::now() >= until {
            waiting.push_front(directory);
            break;
        }
        found.directories += 1;
        let Ok(listing) = fs::read_dir(&directory) else {
            found.failed += 1;
            continue;
        };
        for entry in listing {
            entries += 1;
            let status = entry.and_then(|entry| Ok((entry.metadata()?, entry.path())));
            match status {
                Err(_) => found.failed += 1,
                Ok((status, path)) if status.is_dir() => waiting.push_back(path),
                Ok((status, path)) => {
                    found.seen_files += 1;
                    if status.is_file() {
                        found.seen_bytes += status.len();
                        each(path, status.len());
                    }
                }
            }
            // One directory may have millions of entries.
            if entries >= limits.entries || (entries % 1024 == 0 && Instant::now() >= until) {
                break;
            }
        }
    }
    found.is_whole = waiting.is_empty() && entries < limits.entries && Instant::now() < until;
    let factor = match found.directories {
        0 => 1.0,
        listed => 1.0 + waiting.len() as f64 / listed as f64,
    };
    let estimate = |all: u64, before: u64| before as f64 + (all - before) as f64 * factor;
    found.files = estimate(found.seen_files, files_before);
    found.bytes = estimate(found.seen_bytes, bytes_before);
    Ok(found)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates ten directories with ten files of a thousand bytes each.
    fn tree() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        for directory in 0..10 {
            let directory = top.path().join(directory.to_string());
            fs::create_dir(&directory).unwrap();
            for file in 0..10 {
                fs::write(directory.join(file.to_string()), [0; 1000]).unwrap();
            }
        }
        top
    }

    #[test]
    fn a_tree_is_counted() {
        let top = tree();
        let limits = SurveyLimits {
            time: Duration::from_secs(600),
            ..SurveyLimits::default()
        };
        let found = survey(&[top.path().to_owned()], limits).unwrap();
        assert_eq!((found.seen_files, found.seen_bytes), (100, 100_000));
        assert!(found.is_whole && found.failed == 0, "{found:?}");
        let one = survey(&[top.path().join("3/7")], limits).unwrap();
        assert_eq!((one.files, one.bytes), (1.0, 1000.0));
        assert!(survey(&[top.path().join("absent")], limits).is_err());
    }

    #[test]
    fn at_the_limit_the_rest_is_estimated() {
        let top = tree();
        let limits = SurveyLimits {
            time: Duration::from_secs(600),
            entries: 60,
        };
        let found = survey(&[top.path().to_owned()], limits).unwrap();
        assert!(!found.is_whole && found.seen_files < 100, "{found:?}");
        assert!((60.0..=140.0).contains(&found.files), "{found:?}");
    }
}
