//! Formats the codecs' results in a transfer, for people and for programs.

use longhaul_engine::session::Progress;
use longhaul_proto::coding::CodecUse;
use longhaul_units::ByteCount;
use serde_json::{Value, json};

/// Sums over several codec results.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    encoded: u64,
    nanoseconds: u64,
}

impl Sum {
    fn of<'u>(uses: impl Iterator<Item = &'u CodecUse>) -> Sum {
        uses.fold(Sum::default(), |sum, of| Sum {
            bytes: sum.bytes.saturating_add(of.bytes),
            encoded: sum.encoded.saturating_add(of.encoded),
            nanoseconds: sum.nanoseconds.saturating_add(of.nanoseconds),
        })
    }

    fn ratio(self) -> f64 {
        self.bytes as f64 / self.encoded.max(1) as f64
    }

    fn seconds(self) -> f64 {
        self.nanoseconds as f64 * 1e-9
    }
}

fn is_coded(of: &&CodecUse) -> bool {
    of.codec.compresses()
}

/// Returns the bytes that codecs processed at the source, before and after compression.
pub fn coded_bytes(progress: &Progress) -> (u64, u64) {
    let coded = Sum::of(progress.source_codecs.iter().filter(is_coded));
    (coded.bytes, coded.encoded)
}

/// Returns the seconds of CPU time that codecs used at the destination.
pub fn destination_seconds(progress: &Progress) -> f64 {
    Sum::of(progress.destination_codecs.iter()).seconds()
}

/// Formats the lines of a summary. `saved_seconds` is the time that the codecs saved, negative if
/// the copy was slower with them. With `detailed` there is a line for each kind of data, and one
/// for codecs that were tried and not used.
pub fn lines(progress: &Progress, detailed: bool, saved_seconds: Option<f64>) -> Vec<String> {
    let source = &progress.source_codecs;
    let coded = Sum::of(source.iter().filter(is_coded));
    if coded.bytes == 0 {
        let tried = detailed && coded.nanoseconds > 0;
        let line = || {
            let seconds = coded.seconds();
            format!("compression: none was worth it; trials took {seconds:.3} s of a core")
        };
        return tried.then(line).into_iter().collect();
    }
    let destination = Sum::of(progress.destination_codecs.iter());
    let all = Sum::of(source.iter());
    let mut line = format!(
        "compression: {} became {} ({:.2} times), {:.1} s of a core at the source and {:.1} s at \
         the destination",
        ByteCount(coded.bytes),
        ByteCount(coded.encoded),
        coded.ratio(),
        all.seconds(),
        destination.seconds()
    );
    line += &match saved_seconds {
        Some(seconds) if seconds < 0.0 => format!(
            "; the codec limited the rate: without it, up to {:.1} s less",
            -seconds
        ),
        Some(seconds) => format!("; without it, about {seconds:.1} s more"),
        None => String::new(),
    };
    let mut lines = vec![line];
    if detailed {
        let used = source.iter().filter(|of| of.bytes > 0);
        lines.extend(used.map(row));
        let rest = progress.read_bytes.saturating_sub(all.bytes);
        if rest > 0 {
            let rest = ByteCount(rest);
            lines.push(format!(
                "  {rest} sent as they are while no codec could gain"
            ));
        }
    }
    lines
}

fn row(of: &CodecUse) -> String {
    let kind = of.kind.map_or("all data", |kind| kind.name());
    let bytes = ByteCount(of.bytes);
    if !of.codec.compresses() {
        return format!("  {kind}: {bytes} sent as they are");
    }
    let shuffled = if of.shuffled { " after a shuffle" } else { "" };
    let ratio = Sum::of(std::iter::once(of)).ratio();
    format!(
        "  {kind}: {bytes} by {}{shuffled}, {ratio:.2} times",
        of.codec
    )
}

/// Formats the results as JSON.
pub fn value(progress: &Progress, saved_seconds: Option<f64>) -> Value {
    let row = |of: &CodecUse| {
        json!({
            "kind": of.kind.map(|kind| kind.name()),
            "codec": of.codec.to_string(),
            "shuffled": of.shuffled,
            "bytes": of.bytes,
            "encoded_bytes": of.encoded,
            "cpu_seconds": of.nanoseconds as f64 * 1e-9,
        })
    };
    let rows = |uses: &[CodecUse]| uses.iter().map(row).collect::<Vec<Value>>();
    let (source, destination) = (&progress.source_codecs, &progress.destination_codecs);
    let coded = Sum::of(source.iter().filter(is_coded));
    json!({
        "ratio": (coded.bytes > 0).then(|| coded.ratio()),
        "source_cpu_seconds": Sum::of(source.iter()).seconds(),
        "destination_cpu_seconds": Sum::of(destination.iter()).seconds(),
        "source": rows(&progress.source_codecs),
        "destination": rows(&progress.destination_codecs),
        "saved_seconds": saved_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::coding::{Codec, Kind};
    use std::time::Duration;

    fn used(kind: Kind, codec: Codec, bytes: u64, encoded: u64) -> CodecUse {
        CodecUse {
            kind: Some(kind),
            codec,
            shuffled: false,
            bytes,
            encoded,
            nanoseconds: 2_000_000_000,
        }
    }

    #[test]
    fn a_summary_has_ratio_cpu_time_and_saved_time() {
        let mut progress = Progress {
            elapsed: Duration::from_secs(10),
            wire_bytes: 500_000_000,
            read_bytes: 1_150_000_000,
            source_codecs: vec![
                used(
                    Kind::Text,
                    Codec::Zstd { level: 3 },
                    800_000_000,
                    200_000_000,
                ),
                used(Kind::Full, Codec::Plain, 300_000_000, 300_000_000),
            ],
            ..Progress::default()
        };
        let lines = super::lines(&progress, true, Some(12.0));
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].contains("(4.00 times), 4.0 s of a core"),
            "{lines:?}"
        );
        assert!(lines[0].ends_with("about 12.0 s more"), "{lines:?}");
        assert!(lines[1].contains("text and records: "), "{lines:?}");
        assert!(lines[2].ends_with("sent as they are"), "{lines:?}");
        assert!(
            lines[3].contains("50.0 MB sent as they are while"),
            "{lines:?}"
        );
        let slower = super::lines(&progress, false, Some(-34.2));
        let text = "the codec limited the rate: without it, up to 34.2 s less";
        assert!(slower[0].ends_with(text), "{slower:?}");
        let told = value(&progress, Some(-34.2));
        assert_eq!(told["saved_seconds"], -34.2);
        assert_eq!(told["source"][0]["codec"], "zstd:3");
        assert_eq!(
            (&told["ratio"], &told["source_cpu_seconds"]),
            (&json!(4.0), &json!(4.0))
        );
        progress.source_codecs.remove(0);
        assert!(super::lines(&progress, true, None).is_empty());
        progress.source_codecs = vec![used(Kind::Text, Codec::Lz4, 0, 0)];
        assert!(super::lines(&progress, false, None).is_empty());
        let tried = super::lines(&progress, true, None);
        assert!(tried[0].contains("trials took 2.000 s"), "{tried:?}");
    }
}
