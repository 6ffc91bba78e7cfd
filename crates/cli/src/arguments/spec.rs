//! Converts the command line to a specification, and errors of a specification to
//! messages that name the options.

use std::ffi::OsString;
use std::time::Duration;

use longhaul_proto::digest::Integrity;
use longhaul_proto::filter::Filter;
use longhaul_proto::options::{Digests, Operation, Selection, TransferOptions, Verification};
use longhaul_transfer::between_hosts::job_protocol::Shown;
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::filter_rules::end_with_slash;
use longhaul_transfer::planning::choice::read_plan;
use longhaul_transfer::rendering::options::by_options;
use longhaul_transfer::settings::{self, ConnectionSettings, SshSettings};
use longhaul_transfer::spec::{FixedFlows, Limits, TransferSpec, ValidSpec};

use super::{
    ConnectionArguments, CopyArguments, Expiry, FilterArguments, LayerArguments, SshArguments,
    VerifyArguments,
};
use crate::messages::{Exit, Stop};

impl CopyArguments {
    /// Returns the specification of the copy.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid option.
    // tidy: long because it sets all fields of one value.
    pub fn spec(&self) -> Result<ValidSpec, Stop> {
        let mut paths = self.paths.clone();
        let filter = self.filters.filter(self.recursive)?;
        if self.filters.options.files_from.is_some() {
            // Listed paths are relative to the source and are copied as if it ended with a slash.
            paths.iter_mut().rev().skip(1).for_each(end_with_slash);
        }
        let mut sources = endpoints(&paths)?;
        let destination = sources.pop().filter(|_| !sources.is_empty());
        let destination = destination
            .ok_or_else(|| Stop::new(Exit::Usage, "name a source and, last, a destination"))?;
        let digest = self.integrity == Integrity::Digest;
        let plan = self.plan.as_deref().map(read_plan).transpose()?;
        let plan = plan.unwrap_or_default();
        let compression = self.compression.chosen(plan.codec.as_deref());
        let compression = compression.map_err(|error| Stop::new(Exit::Usage, error))?;
        let keep = self
            .keeping
            .keep_at(self.recursive, [sources.first(), Some(&destination)]);
        let keep = keep.map_err(|error| Stop::because(Exit::Usage, error))?;
        let options = TransferOptions {
            operation: if self.dry_run {
                Operation::DryRun
            } else {
                Operation::Copy
            },
            selection: Selection {
                recursive: self.recursive
                    || self.keeping.archive && !self.no_recursive
                    || self.filters.options.files_from.is_some(),
                copy_links: self.copy_links,
                keep_set_ids: self.keep_set_ids,
            },
            filter,
            keep,
            criteria: self.criteria.criteria(),
            report_omitted: self.accounts.writes.is_any(),
            move_away: self.deletion.move_away,
            deletion: self.deletion.deletion(),
            backup: self.deletion.backup(),
            on_commit: self.commands.on_commit(),
            filter_command: self.commands.filter(),
            filter_at: self.commands.filter_at,
            verification: Verification {
                integrity: self.integrity,
                read_back: self.verify,
                digests: match (&self.manifest, self.json && digest) {
                    (Some(_), _) => Digests::All,
                    (None, true) => Digests::Known,
                    (None, false) => Digests::None,
                },
            },
            compression,
            element_bytes: self.element_size,
            direct_io: self.direct,
            assembly: None,
        };
        let spec = TransferSpec {
            options,
            limits: Limits {
                rate: self.bwlimit.and_then(|limit| limit.0),
                memory: self.layers.memory.0,
                checkpoint: self.checkpoint.0.max(1),
                leftovers_expire: milliseconds(self.expire_leftovers),
                errors: self.accounts.max_errors,
                stop_after: self.accounts.span().map(whole_milliseconds),
                retries: self.accounts.retries,
                retries_sleep: self.accounts.retries_sleep.map(whole_milliseconds),
            },
            flows: self.layers.flows().or_planned(&plan),
            policy: self.policy.policy,
            path_rate: self.policy.path_rate,
            connection: self.connection.settings(),
            ..TransferSpec::copy(sources, destination)
        };
        self.check_pipes(&spec)?;
        valid(spec)
    }

    /// Checks that no other output mixes with data on standard output.
    fn check_pipes(&self, spec: &TransferSpec) -> Result<(), Stop> {
        let to_output = spec.destination.promises().standard_stream;
        if to_output && (self.json || self.verbose) {
            let text = "standard output carries the data: leave out --json and --verbose";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(())
    }

    /// Returns the kinds of output that the command shows.
    pub fn shown(&self) -> Shown {
        Shown {
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            explain: self.explain,
        }
    }
}

impl FilterArguments {
    fn filter(&self, recursive: bool) -> Result<Filter, Stop> {
        let usage = |text: String| Stop::new(Exit::Usage, text);
        let written = |texts: Vec<Vec<u8>>| texts.into_iter().map(Into::into).collect();
        let options = &self.options;
        Ok(Filter {
            rules: written(self.rules().map_err(usage)?),
            files: self.files().map_err(usage)?.map(written),
            files_recursive: recursive && options.files_from.is_some(),
            minimum_size: options.min_size.map(|size| size.0),
            maximum_size: options.max_size.map(|size| size.0),
            newer_than: options.newer_than.map(|moment| moment.0),
            older_than: options.older_than.map(|moment| moment.0),
            maximum_depth: options.max_depth,
            one_file_system: options.one_file_system,
            ..Filter::default()
        })
    }
}

impl VerifyArguments {
    /// Returns the specification of the comparison.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid option.
    pub fn spec(&self) -> Result<ValidSpec, Stop> {
        let mut left = self.left.clone();
        if self.filters.options.files_from.is_some() {
            end_with_slash(&mut left);
        }
        let spec = TransferSpec::comparison(endpoint(&left)?, endpoint(&self.right)?);
        let options = TransferOptions {
            selection: Selection {
                copy_links: self.copy_links,
                ..spec.options.selection
            },
            filter: self.filters.filter(self.recursive)?,
            report_omitted: self.writes.is_any(),
            ..spec.options
        };
        valid(TransferSpec {
            options,
            limits: Limits {
                memory: self.layers.memory.0,
                ..Limits::default()
            },
            flows: self.layers.flows(),
            connection: self.connection.settings(),
            ..spec
        })
    }

    /// Returns the kinds of output that the command shows.
    pub fn shown(&self) -> Shown {
        Shown {
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            explain: false,
        }
    }
}

impl LayerArguments {
    fn flows(&self) -> FixedFlows {
        FixedFlows {
            stack: self.stack,
            readers: self.readers,
            compressors: self.compressors,
            streams: self.streams,
            decompressors: self.decompressors,
            writers: self.writers,
            block_bytes: self.block_size,
        }
    }
}

impl ConnectionArguments {
    /// Returns the settings of the connection.
    pub fn settings(&self) -> ConnectionSettings {
        let asked = self.clone();
        ConnectionSettings {
            fingerprint: asked.fingerprint,
            accept_new: asked.accept_new,
            authority: asked.authority,
            token_file: asked.token_file,
            certificate: asked.certificate,
            key: asked.key,
            data_security: asked.data_security,
            congestion: asked.congestion,
            nice: asked.nice,
            bind: asked.bind,
            mptcp: asked.mptcp,
            buffer: asked.buffer.map(|bytes| bytes.0),
            timeout: asked.timeout.unwrap_or(settings::USUAL_TIMEOUT),
            ssh: asked.ssh.settings(),
            s3: settings::S3Settings {
                endpoint: asked.s3.s3_endpoint,
                region: asked.s3.s3_region,
                anonymous: asked.s3.s3_anonymous,
                requester_pays: asked.s3.s3_requester_pays,
            },
        }
    }
}

impl SshArguments {
    fn settings(self) -> SshSettings {
        SshSettings {
            ssh: self.ssh,
            remote_longhaul: self.remote_longhaul,
            install_remote: self.install_remote,
            ports: self.ports,
            persist: self.ssh_persist,
            asks_nobody: false,
        }
    }
}

fn endpoint(path: &OsString) -> Result<Endpoint, Stop> {
    Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error))
}

fn endpoints(paths: &[OsString]) -> Result<Vec<Endpoint>, Stop> {
    paths.iter().map(endpoint).collect()
}

fn whole_milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn milliseconds(expiry: Expiry) -> Option<u64> {
    expiry.0.map(whole_milliseconds)
}

fn valid(spec: TransferSpec) -> Result<ValidSpec, Stop> {
    let valid = spec.validate();
    valid.map_err(|error| Stop::new(Exit::Usage, by_options(&error)))
}
