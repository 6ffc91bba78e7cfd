//! Arguments for compression of blocks, including the equivalent options of rsync.

use clap::Args;
use longhaul_proto::coding::Compression;
use longhaul_transfer::spec::written;

/// Arguments for compression.
#[derive(Clone, Debug, Args)]
pub struct CompressionArguments {
    /// Compression of blocks: auto, off, or CODEC[:LEVEL]. `auto` measures during the
    /// copy, and chooses for each block the most useful codec, or none. `zstd[:LEVEL]`
    /// and `lz4` apply to every block that gets smaller. Between two paths of this host,
    /// and from zero:, `auto` means off. [default: auto, or the codec of --plan]
    #[arg(
        long,
        value_name = "HOW",
        value_parser = written::compression,
        aliases = ["compress-choice", "zc"],
        overrides_with = "no_compress"
    )]
    compress: Option<Chosen>,
    /// rsync's -z: `auto`, unless another option chooses a codec.
    #[arg(short = 'z', hide = true, overrides_with = "no_compress")]
    automatic: bool,
    /// rsync's --no-compress: `off`.
    #[arg(long, alias = "no-z", hide = true)]
    no_compress: bool,
    /// rsync's --compress-level: zstd of this level, unless another codec is chosen; 0 is `off`.
    #[arg(
        long,
        alias = "zl",
        value_name = "LEVEL",
        value_parser = written::zstd_level,
        hide = true,
        overrides_with = "no_compress"
    )]
    compress_level: Option<Chosen>,
}

impl CompressionArguments {
    /// Returns the compression of the options, or else the one of a plan; `None` means off.
    ///
    /// # Errors
    ///
    /// Returns an error if the plan decides and its codec is unknown.
    pub fn chosen(&self, planned: Option<&str>) -> Result<Option<Compression>, String> {
        let automatic = Some(Compression::Auto);
        let named = self.compress.or(self.automatic.then_some(automatic));
        match (named, self.compress_level) {
            _ if self.no_compress => Ok(None),
            (None | Some(Some(Compression::Auto | Compression::Zstd(_))), Some(level)) => Ok(level),
            (Some(codec), _) => Ok(codec),
            (None, None) => written::compression(planned.unwrap_or("auto"))
                .map_err(|error| format!("the plan's codec: {error}, or use --compress")),
        }
    }
}

/// A compression; `None` means off.
type Chosen = Option<Compression>;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compression: CompressionArguments,
    }

    fn chosen(line: &str) -> Option<Compression> {
        planned(line, None).unwrap()
    }

    fn planned(line: &str, codec: Option<&str>) -> Result<Option<Compression>, String> {
        let line = std::iter::once("cp").chain(line.split_whitespace());
        let line = Line::try_parse_from(line).unwrap();
        line.compression.chosen(codec)
    }

    #[test]
    fn a_plan_decides_unless_an_option_does() {
        for (line, codec, expected) in [
            ("", "zstd:3", Some(Compression::Zstd(3))),
            ("", "off", None),
            ("--compress off", "zstd:3", None),
            ("--no-compress", "zstd:3", None),
            ("--compress auto", "zstd:3", Some(Compression::Auto)),
            ("--compress lz4", "off", Some(Compression::Lz4)),
            ("-z", "off", Some(Compression::Auto)),
            ("--zl 0", "zstd:3", None),
            ("--zl 6", "lz4", Some(Compression::Zstd(6))),
            ("--compress off", "gzip", None),
        ] {
            assert_eq!(planned(line, Some(codec)), Ok(expected), "{line} {codec}");
        }
        let unknown = planned("", Some("gzip")).unwrap_err();
        assert!(unknown.contains("--compress"), "{unknown}");
    }

    #[test]
    fn options_of_rsync_have_the_same_meaning() {
        let zstd = |level| Some(Compression::Zstd(level));
        for (line, expected) in [
            ("", Some(Compression::Auto)),
            ("-z", Some(Compression::Auto)),
            ("--no-compress", None),
            ("--no-compress -z", Some(Compression::Auto)),
            ("-z --no-z", None),
            ("--zl 6", zstd(6)),
            ("--compress-level=6 -z", zstd(6)),
            ("-z --compress-level=0", None),
            ("--zc lz4 --zl=3 -z", Some(Compression::Lz4)),
            ("--compress-choice=zstd --zl=-2", zstd(-2)),
            ("--zc=none", None),
        ] {
            assert_eq!(chosen(line), expected, "{line}");
        }
    }
}
