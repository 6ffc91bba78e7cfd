//! Published rules for the numbers of flows, beside the model's, so that anyone can compare.

/// GridFTP's three numbers, as its manual has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridFtpOptions {
    /// Files that are moved in parallel (`-cc`).
    pub concurrency: u32,
    /// Streams of one file (`-p`).
    pub parallelism: u32,
    /// Requests that are outstanding at once (`-pp`).
    pub pipelining: u32,
}

impl GridFtpOptions {
    /// The streams of all files together.
    pub fn streams(self) -> u32 {
        self.concurrency * self.parallelism
    }
}

/// 50 MB: below this mean, many files count as small.
const SMALL_FILE: f64 = 50e6;

/// 250 MB: files above count as large.
const LARGE_FILE: f64 = 250e6;

/// More files than this count as many.
const MANY_FILES: f64 = 100.0;

/// What Globus Online chooses for a dataset of `files` files with a mean of `mean_bytes` (paper
/// 004, section 6.1.2).
pub fn globus(files: f64, mean_bytes: f64) -> GridFtpOptions {
    let (parallelism, pipelining) = if files > MANY_FILES && mean_bytes < SMALL_FILE {
        (2, 20)
    } else if mean_bytes > LARGE_FILE {
        (8, 5)
    } else {
        (4, 10)
    };
    GridFtpOptions {
        concurrency: 2,
        parallelism,
        pipelining,
    }
}

/// Streams of the BDP rule: as many as it takes that their windows hold what is on its way (paper
/// 000, Eq. 1). `path` in bytes per second, `seconds` the round trip, `window` in bytes. 1 or more.
pub fn streams_for_bdp(path: f64, seconds: f64, window: f64) -> u32 {
    let streams = (path * seconds / window).ceil();
    if streams.is_nan() {
        return 1;
    }
    streams.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globus_goes_by_the_number_and_the_size_of_files() {
        let numbers = |files, bytes| {
            let it = globus(files, bytes);
            (it.concurrency, it.parallelism, it.pipelining)
        };
        assert_eq!(numbers(10_000.0, 1e6), (2, 2, 20));
        assert_eq!(numbers(1000.0, 10e6), (2, 2, 20));
        assert_eq!(numbers(100.0, 100e6), (2, 4, 10));
        assert_eq!(numbers(10.0, 1e9), (2, 8, 5));
        // A hundred small ones are not more than a hundred.
        assert_eq!(numbers(100.0, 1e6), (2, 4, 10));
        assert_eq!(globus(10.0, 1e9).streams(), 16);
    }

    #[test]
    fn streams_hold_a_product() {
        // 1 Gbit/s at 100 ms: 11.8 MB in windows of 2.9 MB.
        assert_eq!(streams_for_bdp(0.9415e9 / 8.0, 0.1, 2.9e6), 5);
        assert_eq!(streams_for_bdp(1e6, 0.0, 2.9e6), 1);
        assert_eq!(streams_for_bdp(1e6, 0.1, f64::INFINITY), 1);
    }
}
