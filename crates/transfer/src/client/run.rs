//! Runs one or both ends of a transfer to completion. Copies and verifications differ only in their
//! requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::recv::parts::most_open_parts;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::kinds::Elements;
use longhaul_engine::send::select::Selected;
use longhaul_engine::send::source::Sources;
use longhaul_engine::send::stream::StreamSource;
use longhaul_engine::session::opening::Agreed;
use longhaul_engine::session::{Ending, Ends, FlowCounts, Transfer, TransferSettings, Watch};
use longhaul_model::control::start::used_memory;
use longhaul_net::clear::local_pair;
use longhaul_proto::coding::Compression;
use longhaul_proto::handshake::{Capability, Landing, Operation, Request, RequestPath, Role};
use longhaul_proto::message::{Farewell, Flows};
use longhaul_proto::notice::{NoticeKind, required_by};
use longhaul_proto::options::{FilterAt, TransferOptions};
use longhaul_proto::session::StreamId;
use longhaul_storage::failure::failure_of;
use longhaul_units::ByteCount;
use signal_hook::consts::SIGHUP;

use super::audited::audited;
use super::connection::{Connected, Opened, block_key};
use super::identity::SourceKey;
use super::local_paths::{Here, landing_stop};
use super::observer::{Caller, Control, INTERRUPTED, Observer, Went};
use super::peer::Peer;
use super::request::{large_files, single_file};
use super::steering::Steering;
use super::tries::{self, Tried};
use super::{pipe, requested, self_copy, sources};
use crate::between_hosts::introduced_peer::Introduction;
use crate::codecs;
use crate::endpoint::{Endpoint, Host, Link, RemotePath, Sink};
use crate::hangup::end_commands_at;
use crate::planning::beginning::Beginning;
use crate::planning::choice::Choice;
use crate::planning::history::Past;
use crate::settings::DataSecurity;
use crate::spec::{SpecError, ValidSpec};
use crate::stop::{Exit, Stop};

/// Number of streams of a copy within a host. One can be written while the other is read.
const LOCAL_STREAMS: usize = 2;

/// A transfer from the point of view of this end.
pub(super) struct Task {
    /// Specification of the transfer.
    pub(super) spec: ValidSpec,
    pub(super) sources: Vec<Endpoint>,
    pub(super) destination: Endpoint,
    /// Rule for the name of a single source at the destination.
    pub(super) landing: Landing,
    /// All other settings.
    pub(super) settings: TransferSettings,
    /// Standard input, if it is the source.
    pub(super) pipe: Option<Arc<StreamSource>>,
    /// Paths of this host that may be opened.
    pub(super) here: Here,
    /// If true, the transfer is added to the history.
    pub(super) remembers: bool,
    /// Choice of the policy.
    pub(super) choice: Choice,
    /// History of earlier transfers.
    pub(super) past: Past,
    /// Initial settings, derived from the history.
    pub(super) begins: Option<Beginning>,
}

/// Facts about the process that runs a transfer, in addition to the specification.
#[derive(Default)]
pub struct Place {
    /// Paths of this host that may be opened.
    pub here: Here,
    /// Introduction to the other host, if this is a job.
    pub introduction: Option<Introduction>,
    /// If true, transfers with other hosts are added to the history for later forecasts.
    pub remembers: bool,
}

/// Runs a transfer to its end. `observer` receives its events. `control` cancels it or changes its
/// rate from another thread.
///
/// # Errors
///
/// The reason why it could not start or did not end. Failed entries are not an error; they give
/// [`Exit::Partial`] or [`Exit::Integrity`].
pub fn run(
    spec: ValidSpec,
    place: Place,
    control: &Control,
    observer: &Arc<dyn Observer>,
) -> Result<Exit, Stop> {
    if let Some(span) = spec.limits.stop_after {
        control.end_after(Duration::from_millis(span))?;
    }
    if spec.options.on_commit.is_some() || spec.options.filter_command.is_some() {
        end_commands_at(&[SIGHUP]);
    }
    let mut limits = spec.limits;
    let mut introduction = place.introduction;
    let mut restarts_within = Some(spec.connection.timeout);
    if introduction.is_some() {
        // The introduction is valid for one session.
        limits.retries = None;
        restarts_within = None;
    }
    if spec
        .sources
        .iter()
        .any(|source| source.promises().standard_stream)
    {
        // Data of standard input can be read once only.
        restarts_within = None;
    }
    let (here, remembers) = (place.here, place.remembers);
    let observer = &audited(observer, here.audit());
    let limited = (limits, restarts_within);
    tries::each(limited, (control, &**observer), || {
        let caller = Caller::new(control, observer);
        control.begin_with(limits);
        let task = Task::chosen(spec.clone(), here.clone());
        let result = task.and_then(|mut task| {
            task.remembers = remembers;
            task.begin_as_planned();
            task.run(introduction.take(), &caller)
        });
        let passing = caller.passing();
        Tried { result, passing }
    })
}

/// Maximum number of bytes of names in a request (a quarter of its size), and the overhead per name
/// in bytes.
const MAXIMUM_NAMES_BYTES: usize = 16 << 10;
const NAME_OVERHEAD: usize = 3;

impl Task {
    /// Returns the landing of the sources. A single file has the landing that the user named;
    /// other sources land within the destination, unless they take its place.
    fn landing_of(&self, is_single_file: bool) -> Landing {
        if is_single_file || self.landing == Landing::As {
            self.landing
        } else {
            Landing::Within
        }
    }

    fn run(&self, introduction: Option<Introduction>, caller: &Caller) -> Result<Exit, Stop> {
        let ends = Endpoint::resolve(&self.sources, &self.destination);
        let ends = ends.map_err(|error| Stop::because(Exit::Usage, SpecError::from(error)))?;
        match ends.link {
            Link::Local => self.local(ends.sink, caller),
            Link::Push(host) => self.push(host, introduction, caller),
            Link::Pull(host) => self.pull((host, ends.sink), introduction, caller),
            Link::ThirdParty(..) => Err(Stop::new(
                Exit::Usage,
                "both sides are at other hosts: one of them has to run the copy",
            )),
        }
    }

    /// Returns the destination path at the other host.
    fn destination_path(&self, path: &RemotePath) -> RequestPath {
        match path.as_path() {
            Some(path) if self.pipe.is_some() => RequestPath::Stream(path.to_vec()),
            _ => path.request_path(),
        }
    }

    /// Returns the filter that selects entries of the sources.
    fn selected(&self) -> Result<Selected, Stop> {
        let bad = |error| Stop::because(Exit::Usage, error);
        Selected::new(&self.spec.options.filter).map_err(bad)
    }

    /// Creates the sending end on this host.
    fn send_side(&self, sources: Sources) -> Result<SendSide, Stop> {
        let options = &self.spec.options;
        let elements = options.element_bytes;
        let elements = elements.and_then(|bytes| Elements::of_bytes(bytes.into()));
        let is_automatic = self.compression() == Some(Compression::Auto);
        let filter = options.filter_command_at(FilterAt::Source).cloned();
        // Do not reveal metadata to other users that only this process's user may read.
        let is_own = match &self.here {
            Here::Anywhere => true,
            Here::Beneath(principal, _) => principal.is_owner(),
        };
        let sees_all = options.keep.fake_source || rustix::process::geteuid().is_root();
        Ok(SendSide::new(sources)
            .selecting(self.selected()?)
            .coding(is_automatic.then(codecs::chooser), elements)
            .filtering(self.here.source_filter(filter)?)
            .keeping(&options.keep, is_own && sees_all)
            .announcing(self.here.intents()))
    }

    /// Returns the function that receives the sending end's events.
    fn watch(&self, caller: &Caller) -> Watch {
        match &self.pipe {
            Some(source) => pipe::watch(source, caller.watch()),
            None => caller.watch(),
        }
    }

    /// Copies from this host to another one.
    fn push(
        &self,
        host: &dyn Host,
        introduction: Option<Introduction>,
        caller: &Caller,
    ) -> Result<Exit, Stop> {
        let is_job = introduction.is_some();
        // A verification takes exactly one source, without wildcards.
        let expands = is_job && self.settings.operation != Operation::Verify;
        let sources = sources::open(self, expands)?;
        let peer = self.peer(host, introduction)?;
        let path = self.destination_path(host.path());
        let mut request = self.request(Role::Sender, vec![path])?;
        request.landing = self.landing_of(single_file(&sources));
        // If the names do not fit, the destination counts as empty only if it has no entries at
        // all.
        let fits = |names: &Vec<Vec<u8>>| {
            let bytes = names.iter().map(|name| name.len() + NAME_OVERHEAD);
            bytes.sum::<usize>() <= MAXIMUM_NAMES_BYTES
        };
        request.names = sources
            .top_names()
            .filter(fits)
            .map(|names| names.into_iter().map(Into::into).collect());
        let connected = peer.connect(
            self.blocks(self.settings.budget),
            self.streams_ahead(request.is_clear()),
        )?;
        let settings = TransferSettings {
            clear: request.header_key(),
            // The answer says whether the destination is empty, so the first questions go with the
            // request.
            asks: true,
            // The daemon may take up to the timeout to answer.
            linger: self.spec.connection.timeout.saturating_mul(2),
            ..self.settings_on(&connected)
        };
        // Questions that come later than half a round trip may as well wait for the answer.
        let patience = connected.rtt / 2;
        let transfer = Transfer::sending(settings, self.send_side(sources)?, self.watch(caller));
        let opened = peer.open(
            connected,
            request,
            &transfer.opening().first_words(patience),
        );
        let opened = opened.inspect_err(|_| {
            transfer.end(Farewell::Cancelled);
            transfer.wait();
        })?;
        transfer.opening().handle_welcome(Agreed {
            asks: !opened.welcome.destination_empty,
            epoch: opened.welcome.epoch,
            linger: self.linger(&opened),
            streams: self.bounds(&opened).initial as usize,
            large_files: self.fewer_files(large_files(opened.welcome.large_files)),
            any_codec: Capability::include_every_codec(&opened.welcome.capabilities),
        });
        self.drive(&peer, opened, &transfer, caller)
    }

    fn peer(&self, host: &dyn Host, introduction: Option<Introduction>) -> Result<Peer, Stop> {
        match introduction {
            Some(introduction) => Peer::introduced(host, &self.spec.connection, introduction),
            None => Peer::new(
                host,
                &self.spec.connection,
                &self.settings,
                self.flows().streams,
            ),
        }
    }

    /// Copies from another host to this one.
    fn pull(
        &self,
        (host, sink): (&dyn Host, Option<&dyn Sink>),
        introduction: Option<Introduction>,
        caller: &Caller,
    ) -> Result<Exit, Stop> {
        let peer = self.peer(host, introduction)?;
        let paths = self.sources.iter().filter_map(Endpoint::remote_path);
        let paths = paths.map(RemotePath::request_path).collect();
        let mut request = self.request(Role::Receiver, paths)?;
        request.destination_empty = self.seems_empty();
        let destination_empty = request.destination_empty;
        let header_key = request.header_key();
        let connected = peer.connect(
            self.blocks(self.settings.budget),
            self.streams_ahead(request.is_clear()),
        )?;
        let settings = self.settings_on(&connected);
        let opened = peer.open(connected, request, &[])?;
        let settings = TransferSettings {
            asks: !destination_empty,
            epoch: opened.welcome.epoch,
            clear: header_key.filter(|_| opened.welcome.clear),
            linger: self.linger(&opened),
            flows: FlowCounts {
                streams: self.bounds(&opened).initial as usize,
                ..settings.flows
            },
            ..settings
        };
        self.check_single_file(opened.welcome.single_file)?;
        let landing = self.landing_of(opened.welcome.single_file);
        let asked = requested::of(self, opened.welcome.single_file)?;
        let destination = self.open_destination(sink, landing)?;
        if settings.operation == Operation::Copy {
            destination.take().map_err(|error| landing_stop(&error))?;
        }
        let side = ReceiveSide::only(destination, asked);
        let transfer = Transfer::receiving(settings, side, caller.watch());
        self.drive(&peer, opened, &transfer, caller)
    }

    /// Returns an error unless the data fit the destination: standard output takes a single file.
    fn check_single_file(&self, is_single_file: bool) -> Result<(), Stop> {
        if self.destination.promises().standard_stream && !is_single_file {
            let text = "the source is no single file: only one goes to standard output";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(())
    }

    /// Copies within this host.
    fn local(&self, sink: Option<&dyn Sink>, caller: &Caller) -> Result<Exit, Stop> {
        if self.settings.operation != Operation::Verify && self.here.principal().is_none() {
            let as_links =
                self.spec.options.selection.recursive && !self.spec.options.selection.copy_links;
            let deletes = self.spec.options.deletion.is_some();
            let selected = self.selected()?;
            let how = (as_links, deletes);
            self_copy::refuse(&self.sources, &self.destination, how, &selected)?;
        }
        let sources = sources::open(self, false)?;
        let one = single_file(&sources) || self.pipe.is_some();
        self.check_single_file(one)?;
        let landing = self.landing_of(single_file(&sources));
        if self.here.principal().is_none() {
            let to = (&self.destination, landing);
            self_copy::refuse_backups(&self.sources, to, self.spec.options.backup.as_ref())?;
        }
        let destination = self.open_destination(sink, landing)?;
        let names = sources.top_names();
        let empty = destination.is_empty(names.as_deref());
        let mut settings = self.settings.clone();
        // With `existing`, no new entry is created, so every entry must be checked.
        let empty = empty.unwrap_or(false) && !settings.criteria.existing;
        settings.asks = self.settings.operation != Operation::Copy || !empty;
        if settings.operation == Operation::Copy {
            settings.epoch = destination.take().map_err(|error| landing_stop(&error))?;
        }
        settings.local = true;
        settings.large_files = self.fewer_files(most_open_parts());
        // Both ends share the configured memory.
        settings.budget = ByteCount(settings.budget.0 / 2);
        let block_bytes = self.blocks(settings.budget).on(Duration::ZERO);
        settings.block_bytes = block_bytes as usize;
        settings.budget = used_memory(settings.budget, block_bytes);
        settings.flows.streams = LOCAL_STREAMS;
        settings.flows = settings.flows.that_fit(&settings, Ends::Both);
        // Create the sockets before either end opens files, which may use up all descriptors.
        let pairs = (0..settings.flows.streams).map(|_| local_pair());
        let pairs = pairs.collect::<io::Result<Vec<_>>>().map_err(|error| {
            let failure = failure_of("join the two ends", "this host", &error);
            Stop::new(Exit::Local, failure.text)
        })?;
        let quiet: Watch = Arc::new(|_| {});
        let receiver = Transfer::receiving(settings.clone(), ReceiveSide::new(destination), quiet);
        let sender = Transfer::sending(settings, self.send_side(sources)?, self.watch(caller));
        for (number, (near, far)) in pairs.into_iter().enumerate() {
            let id = StreamId(number as u32);
            sender.streams().attach(near, id, false, 0);
            receiver.streams().attach(far, id, false, 0);
        }
        if let Some(text) = receiver.summary().failure_here() {
            // The receiver has no stream that could carry the error.
            sender.fail_here(&text);
        }
        caller.follow(&sender);
        let foreseeing = self.foresee(&sender, Duration::ZERO, caller);
        let ending = sender.wait();
        receiver.end(Farewell::Cancelled);
        receiver.wait();
        let went = Went {
            foreseeing,
            ..Went::default()
        };
        self.conclude((&sender, &ending), went, caller)
    }

    fn drive(
        &self,
        peer: &Peer,
        opened: Opened,
        transfer: &Arc<Transfer>,
        caller: &Caller,
    ) -> Result<Exit, Stop> {
        let dialer = peer.dialer(&opened, transfer);
        let dialled = opened.stream.handle.peer_address();
        let rtt = opened.rtt;
        let (steering, steered) = Steering::new(self.bounds(&opened));
        transfer.regulator().carry_out(steering.first_orders());
        transfer.regulator().steer_by(Box::new(steering));
        opened.begin(transfer, dialer)?;
        let remote_flows = self.remote_flows();
        if remote_flows != Flows::default() {
            transfer.regulator().steer(remote_flows);
        }
        caller.follow(transfer);
        let foreseeing = self.foresee(transfer, rtt, caller);
        let ending = peer.wait(transfer);
        let sends = self.destination.remote_path().is_some();
        let route = peer.route(dialled);
        let host = self.other_host().filter(|_| self.is_remembered());
        let went = Went {
            steered: Some(&steered),
            foreseeing,
            remembered: host.map(|host| (host, !sends)),
            route: route.map(|route| route.sending(sends)),
            ..Went::default()
        };
        self.conclude((transfer, &ending), went, caller)
    }

    fn conclude(
        &self,
        (transfer, ending): (&Transfer, &Ending),
        went: Went<'_>,
        caller: &Caller,
    ) -> Result<Exit, Stop> {
        let mut required = required_by(&self.spec.options.keep);
        if self.spec.options.selection.keep_set_ids {
            required.push(NoticeKind::SetIdDropped);
        }
        let went = Went {
            pipe: self.pipe.as_ref().map(|pipe| pipe.whole()),
            asked: &required,
            ..went
        };
        caller.conclude(transfer, (ending, self.settings.operation), went)?;
        if let Some(early) = caller.ended_early() {
            return Err(early);
        }
        if caller.was_cancelled() {
            return Err(Stop::new(Exit::Interrupted, INTERRUPTED));
        }
        if let Some(text) = transfer.summary().failure_here() {
            return Err(Stop::new(Exit::Local, text));
        }
        match &ending.farewell {
            Farewell::Complete => Ok(caller.exit(self.settings.operation)),
            Farewell::Fenced => Err(Stop::new(
                Exit::Superseded,
                "a newer run of the same transfer took over; this one ends",
            )),
            Farewell::Cancelled => Err(Stop::new(Exit::Interrupted, "the other end cancelled it")),
            Farewell::Broken(text) if transfer.summary().came_unasked() => {
                Err(Stop::new(Exit::Integrity, text.clone()))
            }
            Farewell::Broken(text) => Err(Stop::new(
                Exit::Connection,
                format!("the transfer broke off: {text}; the same command resumes it"),
            )),
            Farewell::Storage(text) => Err(Stop::new(Exit::Local, text.clone())),
            Farewell::Restarting => {
                let text = "the daemon is restarting; the same command resumes the transfer";
                Err(Stop::new(Exit::Connection, text).that_restarts())
            }
        }
    }

    /// Returns the settings of this end for the path of the first stream.
    fn settings_on(&self, connected: &Connected) -> TransferSettings {
        TransferSettings {
            block_bytes: connected.block_bytes as usize,
            budget: used_memory(self.settings.budget, connected.block_bytes),
            ..self.settings.clone()
        }
    }

    /// Returns how long a lost daemon is dialed again. It is the shorter of the daemon's session
    /// lifetime and the user's timeout.
    fn linger(&self, opened: &Opened) -> Duration {
        let kept = Duration::from_secs(opened.welcome.linger_seconds.into());
        kept.min(self.spec.connection.timeout)
    }

    /// Returns the keys that identify this transfer.
    pub(super) fn key(&self) -> Result<SourceKey, Stop> {
        let spec = &self.spec;
        let (assembly, task) = (spec.options.assembly, spec.task.as_deref());
        let key = SourceKey::new(&self.sources, &self.here, assembly, task);
        key.map_err(|error| Stop::because(Exit::Local, error))
    }

    fn request(&self, role: Role, paths: Vec<RequestPath>) -> Result<Request, Stop> {
        let settings = &self.settings;
        let key = self.key()?;
        let options = &self.spec.options;
        let options = match role {
            Role::Sender => options.of_destination(),
            Role::Receiver => options.of_source(),
        };
        let options = TransferOptions {
            compression: self.compression(),
            ..options
        };
        Ok(Request {
            landing: self.landing_of(false),
            source: key.source,
            anywhere: key.anywhere.map(Into::into),
            block_bytes: settings.block_bytes as u32,
            stack: settings.stack,
            block_key: block_key(self.spec.connection.data_security == DataSecurity::Clear)?,
            checkpoint_bytes: settings.checkpoint_bytes,
            checkpoint_milliseconds: settings.checkpoint_span.as_millis() as u64,
            large_files: self.fewer_files(most_open_parts()) as u32,
            limit: settings.limit,
            ..Request::new(role, paths, options)
        })
    }
}
