//! Checks the request in a stream's first frame and its permissions. A client without a known
//! principal learns only that it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_engine::benchmark::this_host;
use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::recv::asked::Asked;
use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::keeping::SetIds;
use longhaul_engine::recv::landing::{Arrival, Destination, LandingError, Missing};
use longhaul_engine::recv::stream::FileStream;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::kinds::Elements;
use longhaul_engine::send::select::Selected;
use longhaul_engine::session::opening::{self, OpenError, SOFTWARE};
use longhaul_engine::session::{Event, Reporting, Transfer, TransferSettings, Watch};
use longhaul_model::control::start::used_memory;
use longhaul_net::gate::Ticket;
use longhaul_net::principals::{Commands, Principal, Principals, Proof, Resolved, TokenRefused};
use longhaul_net::stream::Closed;
use longhaul_net::token::{Token, fill_random};
use longhaul_net::{Stream, StreamHandle};
use longhaul_proto::allowed::Allowed;
use longhaul_proto::byte_string::ByteString;
use longhaul_proto::coding::Compression;
use longhaul_proto::handshake::{
    Answer, Capability, Credential, Heard, Join, Joined, Landing, Operation, PROTOCOL_VERSION,
    Purpose, Refusal, Refused, Request, RequestPath, Role, Secret, SessionId, Spoken, Vouch,
    Vouched, Welcome,
};
use longhaul_proto::message::Farewell;
use longhaul_proto::options::{FilterAt, TransferOptions};
use longhaul_proto::session::StreamId;
use longhaul_storage::measuring::sink;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::roots::{Anywhere, Confined};
use longhaul_units::{ByteCount, rfc3339};

use super::asker::described_request;
use super::audit::{About, Audit, AuditSession, file_audit};
use super::backups::{keeping_anywhere, keeping_beneath};
use super::quotas::Held;
use super::sessions::{Key, Running, destination_of};
use super::sources::{open_sources, source_filter_of};
use super::sums::Ended;
use super::turns::{Rank, Turn};
use super::vouched::{COUNTS_FOR, Word};
use super::{Daemon, FIRST_FRAME, LAST_WORDS};
use crate::client::observer::stream_damage;
use crate::client::owner::owner;
use crate::client::request::{large_files, single_file};
use crate::client::requested;
use crate::codecs;
use crate::console::one_line;

// tidy: long file because every check of a first frame is in one place.

/// Maximum number of streams of a session.
const MAXIMUM_STREAMS: u32 = 512;

/// Maximum length in bytes of a refusal in the log. It may contain paths.
const MAXIMUM_REFUSAL_BYTES: usize = 8 << 10;

/// A client that sends a first frame.
pub struct Visitor {
    /// True if its stream is clear.
    pub clear: bool,
    /// Its place among unauthenticated clients.
    pub ticket: Option<Ticket>,
    /// Rank of the connection, or of the request once that is known.
    pub rank: Rank,
    /// True if it uses the channel over which the process was started. It then has the rights of
    /// the process's owner.
    pub owner: bool,
    /// Its address, for messages.
    pub peer: String,
    /// Maximum time for its first frame.
    pub patience: Duration,
}

/// Maximum number of bytes in the log from an unauthenticated client's text.
const STRANGER_SHOWN: usize = 96;

/// Maximum number of bytes in the log from an unauthenticated client's software name.
const SOFTWARE_SHOWN: usize = 128;

/// Maximum bytes and time between checkpoints. The receiver keeps a record of each piece that
/// arrives between two checkpoints, so a client that requests fewer checkpoints still gets these.
const MOST_CHECKPOINT: (u64, Duration) = (1 << 30, Duration::from_secs(60));

/// Maximum time without data on a channel over ssh.
const SILENT_CHANNEL: Duration = Duration::from_secs(600);

impl Visitor {
    /// Creates a client that has to prove that it belongs to a session.
    pub fn stranger(peer: String) -> Visitor {
        Visitor {
            clear: false,
            ticket: None,
            rank: Rank::now(0),
            owner: false,
            peer,
            patience: FIRST_FRAME,
        }
    }

    /// Creates such a client on a channel of the user who owns this process. The channel may wait
    /// long, for example while another login asks for a password. It ends with its ssh. The limit
    /// applies if the end of ssh goes unnoticed.
    pub fn of_channel(peer: &str) -> Visitor {
        Visitor {
            patience: SILENT_CHANNEL,
            ..Visitor::stranger(peer.to_owned())
        }
    }
}

/// An end that was prepared for a request but not yet welcomed.
struct Prepared {
    transfer: Arc<Transfer>,
    destination_empty: bool,
    single_file: bool,
    epoch: u64,
    key: Option<Key>,
    /// Description of this host, if requested.
    host: Option<String>,
    /// Congestion control of a sender's streams.
    congestion: Option<String>,
    /// Its place among the sessions.
    place: Held,
    /// Its records in the audit log.
    audit: Option<Arc<AuditSession>>,
    /// Credential of its client.
    proof: Proof,
    /// Maximum number of its streams.
    maximum_streams: u32,
    /// Its turn to take over the transfer, held until it is one of the sessions.
    turn: Option<Turn>,
}

pub(super) fn refused(refusal: Refusal, text: impl Into<String>) -> Refused {
    Refused {
        refusal,
        text: text.into(),
        superseded: false,
    }
}

/// Returns the refusal after a newer request of the same transfer. The older sender is dead or
/// should end.
fn superseded() -> Refused {
    Refused {
        superseded: true,
        ..refused(Refusal::Busy, "a newer run of the same transfer took over")
    }
}

/// Checks if a request is valid and allowed now. `allowed` limits an introduced host.
fn check_request(
    request: &Request,
    allowed: Option<&Allowed>,
    (allow_clear, is_draining): (bool, bool),
) -> Result<(), Refused> {
    if !request.is_valid() {
        return Err(refused(
            Refusal::Malformed,
            "the request's values are out of their range",
        ));
    }
    if allowed.is_some_and(|allowed| !allowed.permits(request)) {
        let text = "this host was introduced for one copy, and asks for another one";
        return Err(refused(Refusal::Forbidden, text));
    }
    if request.is_clear() && !allow_clear {
        return Err(no_clear());
    }
    if is_draining {
        return Err(restarting());
    }
    Ok(())
}

/// Returns the refusal of blocks in clear.
fn no_clear() -> Refused {
    let text = "blocks in clear are not allowed here: leave out --data-security clear, or start \
                the daemon with --allow-clear";
    refused(Refusal::Clear, text)
}

/// Returns the refusal of a daemon that accepts no new sessions. The client tries again.
pub(super) fn restarting() -> Refused {
    let text = "the daemon is restarting and accepts no new sessions: try again later";
    refused(Refusal::Busy, text)
}

/// Refuses a dialer with another version of the protocol.
fn other_version(spoken: &Spoken) -> Refused {
    let text = format!(
        "the daemon ({SOFTWARE}) speaks version {PROTOCOL_VERSION} of the protocol, {} speaks \
         version {}: use the same release of longhaul on both ends",
        one_line(&spoken.software, SOFTWARE_SHOWN),
        spoken.version
    );
    refused(Refusal::Version, text)
}

/// Maximum wait for one message of a list of files.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// Returns the refusal for a destination that cannot be used.
fn landing_refused(error: &LandingError) -> Refused {
    match error {
        LandingError::Superseded => superseded(),
        other => refused(Refusal::Path, other.to_string()),
    }
}

/// Returns the filter of a request. Receives the list of files that follows it.
fn selected_of(request: &Request, stream: &mut Stream) -> Result<Selected, Refused> {
    let mut filter = request.options.filter.clone();
    let malformed = |text: String| refused(Refusal::Malformed, text);
    let received = opening::receive_list(stream, &mut filter, LIST_PATIENCE);
    received.map_err(|error| malformed(format!("the list of files: {error}")))?;
    Selected::new(&filter).map_err(|error| malformed(error.to_string()))
}

impl Daemon {
    /// Receives the first frame and handles its request.
    pub fn receive_hello(self: &Arc<Daemon>, mut stream: Stream, mut visitor: Visitor) {
        let (clear, peer) = (visitor.clear, visitor.peer.clone());
        let peer = peer.as_str();
        let hello = match opening::receive(&mut stream, visitor.patience) {
            Ok(Heard::Same(hello)) => hello,
            Ok(Heard::Other(spoken)) => {
                return self.refuse(&mut stream, other_version(&spoken), peer);
            }
            // The client connected without sending data, as in a search for a route.
            Err(OpenError::Io(_)) if stream.handle.bytes_read() == ByteCount(0) => return,
            Err(error) => return self.unauthenticated.note(&format!("{peer}: {error}")),
        };
        let capabilities = hello.capabilities;
        match hello.purpose {
            Purpose::Join(join) => self.join(stream, &join, visitor),
            Purpose::List(asked) if !clear => self.list(stream, &asked, visitor),
            Purpose::List(_) => {
                let text = "a listing is asked for within TLS";
                self.refuse(&mut stream, refused(Refusal::Clear, text), peer);
            }
            Purpose::Vouch(_) | Purpose::Open(_) | Purpose::ControlRequest(_) if clear => {
                let text = "a session begins within TLS";
                self.refuse(&mut stream, refused(Refusal::Clear, text), peer);
            }
            Purpose::ControlRequest(control_request) => {
                self.run_control_request(stream, &control_request, visitor);
            }
            Purpose::Vouch(vouch) => match self.vouch(&vouch, &stream) {
                Ok(vouched) => {
                    // A client that misses the answer repeats the request.
                    opening::answer_last(&mut stream, &Answer::Vouched(vouched), LAST_WORDS);
                }
                Err(refused) => {
                    let who = self.described(vouch.credential.as_ref(), &stream, peer);
                    let who = format!("{who}, vouching for another host,");
                    self.refuse(&mut stream, refused, &who);
                }
            },
            Purpose::Open(request) => {
                match self.prepare(&request, &capabilities, &mut stream, &mut visitor) {
                    Ok((prepared, principal)) => {
                        let welcome = self.welcome(&prepared);
                        match welcome {
                            Some(welcome) => {
                                self.run_session(stream, prepared, welcome, &principal, &visitor);
                            }
                            None => tracing::error!(
                                "the system has no randomness: no session can begin"
                            ),
                        }
                    }
                    Err(refused) => {
                        let who = self.described(request.credential.as_ref(), &stream, peer);
                        let who = format!("{who}, {},", described_request(&request));
                        self.refuse(&mut stream, refused, &who);
                    }
                }
            }
        }
    }

    /// Sends a refusal and logs it. Unauthenticated clients share a limit on their log lines.
    pub(super) fn refuse(&self, stream: &mut Stream, refused: Refused, who: &str) {
        let text = format!("{who} was refused: {}", refused.text);
        match refused.refusal {
            Refusal::Version
            | Refusal::Credential
            | Refusal::NoSession
            | Refusal::Malformed
            | Refusal::Clear => {
                let who = one_line(who, STRANGER_SHOWN);
                let text = format!("{who} was refused: {}", refused.text);
                self.unauthenticated.note(&text);
            }
            Refusal::Forbidden | Refusal::Busy | Refusal::Path | Refusal::Unreachable => {
                tracing::warn!(
                    outcome = "refused",
                    "{}",
                    one_line(&text, MAXIMUM_REFUSAL_BYTES)
                );
            }
        }
        // A stranger may ignore the answer, so a failure to send it is ignored.
        opening::answer_last(stream, &Answer::Refused(refused), LAST_WORDS);
    }

    /// Accepts another host under the principal that vouches for it.
    fn vouch(&self, vouch: &Vouch, stream: &Stream) -> Result<Vouched, Refused> {
        let principals = self.principals();
        if self.client.is_some() {
            let text = "this is the remote host of one session, and lets nobody else in";
            return Err(refused(Refusal::Malformed, text));
        }
        // A host that was vouched for cannot vouch for others.
        let (principal, proof) = proved(&principals, vouch.credential.as_ref(), stream)?;
        if !vouch.allowed.as_ref().is_none_or(Allowed::is_valid) {
            let text = "what the other host may ask for makes no sense";
            return Err(refused(Refusal::Malformed, text));
        }
        let word = (principal.name(), proof, vouch.allowed.clone());
        self.vouched.add(vouch.key, word, Instant::now());
        Ok(Vouched {
            seconds: u32::try_from(COUNTS_FOR.as_secs()).unwrap_or(u32::MAX),
        })
    }

    /// Returns the principal of the client, by its credential or by another principal's vouching.
    /// In the second case also returns the permitted requests.
    fn authenticate<'a>(
        &self,
        principals: &'a Principals,
        credential: Option<&Credential>,
        stream: &Stream,
    ) -> Result<(&'a Principal, Proof, Option<Word>), Refused> {
        let shown = proved(principals, credential, stream);
        let by_key = credential.is_some_and(|credential| credential.token.is_none());
        let key = stream.handle.peer_fingerprint().filter(|_| by_key);
        match (shown, key) {
            (Err(refused), Some(key)) => {
                let word = self.vouched.take(&key, Instant::now());
                let found = word.and_then(|word| {
                    let principal = principals.by_name(&word.principal)?;
                    Some((principal, word.proof.clone(), Some(word)))
                });
                found.ok_or(refused)
            }
            (shown, _) => shown.map(|(principal, proof)| (principal, proof, None)),
        }
    }

    fn join(&self, mut stream: Stream, join: &Join, visitor: Visitor) {
        let clear = visitor.clear;
        let unknown = || {
            refused(
                Refusal::NoSession,
                "there is no such session any more: run the command again",
            )
        };
        let found = self
            .sessions
            .find(join.session)
            .filter(|(transfer, secret, _)| {
                if clear {
                    transfer.streams().redeem_ticket(&join.secret)
                } else {
                    *secret == join.secret
                }
            });
        let Some((transfer, _, most)) = found else {
            return self.refuse(&mut stream, unknown(), &visitor.peer);
        };
        if transfer.measurements().progress().streams >= most as usize {
            let text = format!("the session has as many streams as it may: {most}");
            return self.refuse(&mut stream, refused(Refusal::Busy, text), &visitor.peer);
        }
        drop(visitor);
        let joined = Joined {
            received: transfer.streams().received(),
        };
        let handle = stream.handle.clone();
        let answered = opening::send(&mut stream, &Answer::Joined(joined)).is_ok();
        if !answered
            || !transfer
                .streams()
                .attach(stream, StreamId(join.stream), clear, join.received)
        {
            handle.shutdown();
        }
    }

    /// Prepares this end of the requested session.
    fn prepare(
        &self,
        request: &Request,
        capabilities: &[Capability],
        stream: &mut Stream,
        visitor: &mut Visitor,
    ) -> Result<(Prepared, String), Refused> {
        let principals = self.principals();
        let (principal, proof, word) = match principals.owning().filter(|_| visitor.owner) {
            Some(principal) => (principal, Proof::Owner, None),
            None => self.authenticate(&principals, request.credential.as_ref(), stream)?,
        };
        let allowed = word
            .as_ref()
            .and_then(|word| word.allowed.as_ref())
            .or_else(|| self.client.as_ref()?.allowed.as_ref());
        // The client is authenticated, and opening the session may take long.
        drop(visitor.ticket.take());
        let is_draining = self.sessions.is_draining();
        check_request(request, allowed, (self.terms.allow_clear, is_draining))?;
        let key = key_of(request, principal);
        let waited = Duration::from_millis(request.waited_milliseconds);
        visitor.rank = visitor.rank.after_waiting(waited);
        let take_turn = |key| self.sessions.take_turn(key, visitor.rank);
        let turn = match &key {
            Some(key) => Some(take_turn(key).ok_or_else(superseded)?),
            None => None,
        };
        let asks = (principal.name(), principal.limits().sessions);
        let place = match self.sessions.take_place(asks, key.as_ref()) {
            Ok(place) => place,
            Err(full) => {
                // The client will retry with the same vouching.
                if let Some(word) = word {
                    self.vouched.give_back(word);
                }
                return Err(refused(Refusal::Busy, full.to_string()));
            }
        };
        let about = About::of(request, principal.name(), &visitor.peer);
        let audit = begin_audit(self.audit.as_ref(), &about)?;
        let place = (place, audit.clone());
        let prepared = match request.role {
            Role::Sender => {
                let claim = (key, turn, &stream.handle);
                let asked = allowed.map(requested::of_introduced);
                self.prepare_receiver(request, (principal, asked), claim, place)
            }
            Role::Receiver => selected_of(request, stream).and_then(|selected| {
                self.prepare_sender(request, capabilities, (principal, selected), place)
            }),
        };
        let mut prepared = prepared.inspect_err(|refused| {
            if let Some(audit) = audit {
                audit.end(None, 0, &format!("refused: {}", refused.text));
            }
        })?;
        if request.wants_host && principal.may_measure() {
            // A description that is too long is omitted, since the session does not need it.
            prepared.host = this_host::describe().to_json().ok();
        }
        prepared.proof = proof;
        let streams = principal.limits().streams.unwrap_or(MAXIMUM_STREAMS);
        prepared.maximum_streams = streams.min(MAXIMUM_STREAMS);
        let sends = request.role == Role::Receiver;
        prepared.congestion = stream.handle.governed_by().filter(|_| sends);
        Ok((prepared, principal.name().to_owned()))
    }

    fn settings(&self, request: &Request, principal: &Principal) -> TransferSettings {
        let memory = principal.limits().memory.unwrap_or(self.terms.memory);
        let memory = memory.min(self.terms.memory);
        TransferSettings {
            block_bytes: request.block_bytes as usize,
            budget: used_memory(memory, request.block_bytes),
            checkpoint_bytes: request.checkpoint_bytes.min(MOST_CHECKPOINT.0),
            checkpoint_span: Duration::from_millis(request.checkpoint_milliseconds)
                .min(MOST_CHECKPOINT.1),
            linger: self.terms.linger,
            large_files: large_files(request.large_files),
            omitted: if request.options.report_omitted {
                Reporting::There
            } else {
                Reporting::No
            },
            expiry: self.terms.expiry,
            clear: request.header_key(),
            limit: request.limit,
            stack: request.stack,
            ..TransferSettings::new(&request.options)
        }
    }

    fn prepare_receiver(
        &self,
        request: &Request,
        (principal, asked): (&Principal, Option<Asked>),
        (key, turn, handle): (Option<Key>, Option<Turn>, &StreamHandle),
        (place, audit): (Held, Option<Arc<AuditSession>>),
    ) -> Result<Prepared, Refused> {
        let [path] = request.paths.as_slice() else {
            return Err(refused(Refusal::Malformed, "one destination, please"));
        };
        let options = &*request.options;
        let arrival = Arrival {
            principal: principal.name().to_owned(),
            anywhere: request.anywhere.map_or(request.source, Into::into),
            keeper: Arc::new(keeper_of(options)?),
            intents: file_audit(audit.as_ref()),
            ..Arrival::new(owner(), request.source, options)
        };
        let destination = match path {
            RequestPath::Null if principal.may_measure() => Destination::sink(sink(), arrival),
            RequestPath::Path(path) => {
                open_destination(principal, path, (request.landing, options), arrival)?
            }
            RequestPath::Stream(path) => open_stream(principal, path, request, arrival)?,
            RequestPath::Null | RequestPath::Zero(_) => return Err(may_not_measure()),
        };
        let names = request.names.as_ref();
        let names = names.map(|names| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>());
        let mut settings = self.settings(request, principal);
        let copies = request.options.operation == Operation::Copy;
        // An older session of this transfer that waits for its client must release it first.
        if let Some(key) = &key {
            self.sessions.fence(key);
        }
        // A claim for a client that has left would fence its successor.
        let overtaken = turn.as_ref().is_some_and(|turn| !turn.is_newest());
        if overtaken || handle.is_closed() != Closed::Not {
            return Err(superseded());
        }
        if copies {
            settings.epoch = destination
                .take()
                .map_err(|error| landing_refused(&error))?;
        }
        let empty = destination
            .is_empty(names.as_deref())
            .map_err(|error| refused(Refusal::Path, error.to_string()))?;
        settings.asks = !(empty && copies) || settings.criteria.existing;
        let (destination_empty, epoch) = (!settings.asks, settings.epoch);
        let side = match asked {
            Some(asked) => ReceiveSide::only(destination, asked),
            None => ReceiveSide::new(destination),
        };
        let transfer = Transfer::receiving(settings, side, watch(audit.clone()));
        Ok(Prepared {
            transfer,
            destination_empty,
            single_file: false,
            epoch,
            key,
            host: None,
            congestion: None,
            place,
            audit,
            proof: Proof::Owner,
            maximum_streams: MAXIMUM_STREAMS,
            turn,
        })
    }

    fn prepare_sender(
        &self,
        request: &Request,
        capabilities: &[Capability],
        (principal, selected): (&Principal, Selected),
        (place, audit): (Held, Option<Arc<AuditSession>>),
    ) -> Result<Prepared, Refused> {
        let sources = open_sources(request, principal)?;
        let mut settings = self.settings(request, principal);
        settings.asks = !request.destination_empty || request.options.operation != Operation::Copy;
        settings.any_codec = Capability::include_every_codec(capabilities);
        let single_file = single_file(&sources);
        let options = &*request.options;
        let is_automatic = options.compression == Some(Compression::Auto);
        let elements = options.element_bytes.unwrap_or_default();
        let elements = Elements::of_bytes(elements.into());
        let filter = options.filter_command_at(FilterAt::Source).cloned();
        // Do not reveal metadata to others that only this process's user may read. Metadata kept in
        // user extended attributes is not restricted in this way.
        let sees_all = principal.is_owner() || options.keep.fake_source;
        let side = SendSide::of(sources, principal.name())
            .selecting(selected)
            .coding(is_automatic.then(codecs::chooser), elements)
            .filtering(source_filter_of(principal, filter)?)
            .keeping(&options.keep, sees_all)
            .announcing(file_audit(audit.as_ref()));
        let transfer = Transfer::sending(settings, side, watch(audit.clone()));
        Ok(Prepared {
            transfer,
            destination_empty: false,
            single_file,
            epoch: 1,
            key: None,
            host: None,
            congestion: None,
            place,
            audit,
            proof: Proof::Owner,
            maximum_streams: MAXIMUM_STREAMS,
            turn: None,
        })
    }

    fn welcome(&self, prepared: &Prepared) -> Option<Welcome> {
        let (mut session, mut secret) = ([0; 16], [0; 32]);
        fill_random(&mut session).ok()?;
        fill_random(&mut secret).ok()?;
        Some(Welcome {
            software: SOFTWARE.to_owned(),
            capabilities: Capability::ALL.to_vec(),
            session: SessionId(session),
            secret: Secret(secret),
            epoch: prepared.epoch,
            destination_empty: prepared.destination_empty,
            clear: prepared.transfer.summary().is_clear(),
            maximum_streams: prepared.maximum_streams,
            linger_seconds: u32::try_from(self.terms.linger.as_secs()).unwrap_or(u32::MAX),
            single_file: prepared.single_file,
            large_files: prepared.transfer.measurements().most_open_parts() as u32,
            host: prepared.host.clone(),
            congestion: prepared.congestion.clone(),
        })
    }

    fn run_session(
        self: &Arc<Daemon>,
        mut stream: Stream,
        prepared: Prepared,
        welcome: Welcome,
        principal: &str,
        visitor: &Visitor,
    ) {
        let peer = &visitor.peer;
        let (id, secret) = (welcome.session, welcome.secret);
        let Prepared {
            transfer,
            key,
            place,
            audit,
            proof,
            maximum_streams,
            turn,
            ..
        } = prepared;
        let rank = visitor.rank;
        self.sessions.add(
            id,
            Running {
                transfer: Arc::clone(&transfer),
                secret,
                key,
                rank,
                place,
                proof: (principal.to_owned(), proof),
                maximum_streams,
            },
        );
        let records = (&transfer, audit);
        self.session_log.begin(id, (principal, peer), records);
        drop(turn);
        // The principals may have been read again since the client was authenticated.
        self.sessions.revoke(&self.principals());
        self.answer_calls(&transfer);
        let welcomed = opening::send(&mut stream, &Answer::Welcome(welcome)).is_ok();
        let attached = welcomed
            && if visitor.owner {
                transfer.streams().attach_bootstrap(stream)
            } else {
                transfer.streams().attach(stream, StreamId(0), false, 0)
            };
        if !attached {
            transfer.end(Farewell::Broken("the first stream was lost".to_owned()));
        }
        let ending = transfer.wait();
        if let Some(bytes) = crate::console::live_heap() {
            tracing::info!(bytes, "live heap: {bytes} bytes");
        }
        // Write the log line first: a stopping daemon exits as soon as no session is left.
        let farewell = &ending.farewell;
        self.session_log
            .write(id, ended_of(farewell), &described(farewell));
        self.sessions.remove(id);
    }
}

/// Begins the records of a session in the audit log.
fn begin_audit(
    audit: Option<&Arc<Audit>>,
    about: &About<'_>,
) -> Result<Option<Arc<AuditSession>>, Refused> {
    let Some(audit) = audit else {
        return Ok(None);
    };
    let begun = audit.begin(about).map_err(|error| {
        tracing::error!("the audit log cannot be written: {error}; no session may write");
        let text = "the daemon cannot record who writes what, and accepts no data: its \
                    administrator finds the reason in its log";
        refused(Refusal::Path, text)
    })?;
    Ok(Some(Arc::new(begun)))
}

/// Returns the function that logs events of sessions which their clients cannot see, and records
/// the outcomes of entries.
fn watch(audit: Option<Arc<AuditSession>>) -> Watch {
    Arc::new(move |event| {
        if let Some(audit) = &audit {
            audit.event(&event);
        }
        if let Event::StreamDamaged { stream, error } = event {
            tracing::warn!("{}", stream_damage(stream, &error));
        }
    })
}

pub(super) fn authenticate<'a>(
    principals: &'a Principals,
    credential: Option<&Credential>,
    stream: &Stream,
) -> Result<&'a Principal, Refused> {
    proved(principals, credential, stream).map(|(principal, _)| principal)
}

/// Returns the principal of a client and the credential by which it was authenticated.
fn proved<'a>(
    principals: &'a Principals,
    credential: Option<&Credential>,
    stream: &Stream,
) -> Result<(&'a Principal, Proof), Refused> {
    let failed = || {
        let text = "the daemon knows no such principal with this token or certificate";
        refused(Refusal::Credential, text)
    };
    let credential = credential.ok_or_else(failed)?;
    if let Some(token) = &credential.token {
        let token: Token = token.parse().map_err(|_| failed())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs().cast_signed();
        let found = principals.by_token(&credential.principal, &token, now);
        return found.map_err(|error| match error {
            TokenRefused::Unknown => failed(),
            // The client has proved that it holds the token, so it may learn its date.
            TokenRefused::Expired(at) => {
                let at = rfc3339(at);
                let text = format!("your token expired at {at}: ask the administrator for another");
                refused(Refusal::Credential, text)
            }
        });
    }
    let key = stream.handle.peer_fingerprint().ok_or_else(failed)?;
    let name = Some(credential.principal.as_str()).filter(|name| !name.is_empty());
    let principal = principals.by_certificate(name, &key);
    let principal = principal.map_err(|_| failed())?;
    // The client has proved that it holds the key, so it may learn about the validity dates.
    let validity = stream.handle.peer_validity().ok_or_else(failed)?;
    match validity.check_now() {
        Ok(()) => Ok((principal, Proof::Certificate(key))),
        Err(dates) => {
            let text = format!("your certificate {dates}: renew it, or correct the clock");
            Err(refused(Refusal::Credential, text))
        }
    }
}

fn ended_of(farewell: &Farewell) -> Ended {
    match farewell {
        Farewell::Complete => Ended::Complete,
        Farewell::Fenced => Ended::Superseded,
        Farewell::Cancelled => Ended::Cancelled,
        Farewell::Broken(_) | Farewell::Restarting => Ended::Broken,
        Farewell::Storage(_) => Ended::Storage,
    }
}

fn described(farewell: &Farewell) -> String {
    match farewell {
        Farewell::Complete => "complete".to_owned(),
        Farewell::Fenced => "a newer session took over".to_owned(),
        Farewell::Cancelled => "cancelled".to_owned(),
        Farewell::Restarting => "the daemon was stopped for a restart".to_owned(),
        Farewell::Broken(text) | Farewell::Storage(text) => one_line(text, MAXIMUM_REFUSAL_BYTES),
    }
}

/// Returns the key of the transfer, or `None` if it writes nothing here. A transfer that only reads
/// fences no other.
fn key_of(request: &Request, principal: &Principal) -> Option<Key> {
    match (request.role, request.paths.as_slice()) {
        (Role::Sender, [path]) if request.options.operation == Operation::Copy => Some(Key {
            principal: principal.name().to_owned(),
            source: request.source,
            destination: destination_of(path),
        }),
        _ => None,
    }
}

/// Returns the refusal for a missing right or a missing path. The text does not reveal which of the
/// two applies.
pub fn not_permitted(right: &str) -> Refused {
    let text =
        format!("there is no such path for this principal, or not with the right to {right}");
    refused(Refusal::Forbidden, text)
}

/// Maximum length of a path in the text, in characters.
const SHOWN_PATH: usize = 200;

/// Returns the refusal for a path that the principal may use, but without this right.
pub(super) fn lacks(principal: &Principal, path: &[u8], right: &str) -> Refused {
    let path = String::from_utf8_lossy(path);
    let path: String = path.chars().take(SHOWN_PATH).collect();
    let served = match right {
        "write" => "start the daemon with `serve --write`, or ",
        "delete" => "start the daemon with `serve --write --delete`, or ",
        _ => "",
    };
    let name = principal.name();
    let text = format!(
        "the principal {name} has no right to {right} at {path}: {served}add \"{right}\" to the \
         rights of that root in the daemon's principals file"
    );
    refused(Refusal::Forbidden, text)
}

/// Returns the refusal for `null:` and `zero:`.
pub fn may_not_measure() -> Refused {
    let text = "this principal may not measure (null:, zero:, probe): have \"measure\" added to \
                the rights of one of its roots";
    refused(Refusal::Forbidden, text)
}

pub(super) fn open_root(resolved: &Resolved<'_>) -> Result<Confined, Refused> {
    let root = PosixDirectory::open_root(resolved.root);
    root.map(Confined).map_err(|error| {
        tracing::error!(
            "the root {} cannot be opened: {error}",
            resolved.root.display()
        );
        refused(
            Refusal::Path,
            "the root of this path cannot be opened: ask the administrator",
        )
    })
}

/// Returns the requested path relative to its root; `.` is the root.
pub(super) fn path_beneath(resolved: &Resolved<'_>, asked: &[u8]) -> Vec<u8> {
    let mut path = match &resolved.rest {
        Some(rest) => rest.as_bytes().to_vec(),
        None => b".".to_vec(),
    };
    if asked.ends_with(b"/") && resolved.rest.is_some() {
        path.push(b'/');
    }
    path
}

/// Returns the rule for a principal. Only the principal claims who owns its files at its own host,
/// so keeping such bits requires a right.
fn set_ids_of(resolved: &Resolved<'_>) -> SetIds {
    if resolved.rights.set_id {
        SetIds::Keep
    } else {
        SetIds::Drop
    }
}

/// Returns the rules for received metadata, limited by the rights of this process's user.
fn keeper_of(options: &TransferOptions) -> Result<Keeper, Refused> {
    let keeper = Keeper::new(options.keep.clone(), May::ANYTHING);
    let keeper = keeper.map_err(|error| refused(Refusal::Malformed, error.to_string()))?;
    match keeper.unknown_owner() {
        None => Ok(keeper),
        Some(owner) => {
            let text = format!("there is no {owner} at the destination: name one that is there");
            Err(refused(Refusal::Path, text))
        }
    }
}

/// Returns the operations that a principal may request for its files.
fn may_of(resolved: &Resolved<'_>) -> May {
    May {
        owners: resolved.rights.owners,
        devices: resolved.rights.devices,
        // A hard link may place a file where it can be read.
        links: resolved.rights.read,
        // Comparing would allow the principal to guess contents.
        compares: resolved.rights.read,
    }
}

/// Opens a destination of a principal for a copy with these options.
///
/// # Errors
///
/// The principal has no such path or right, or the path cannot be opened.
pub fn open_destination(
    principal: &Principal,
    path: &[u8],
    (landing, options): (Landing, &TransferOptions),
    mut arrival: Arrival,
) -> Result<Destination, Refused> {
    let operation = options.operation;
    let missing = Missing::for_operation(operation);
    let backup = arrival.backup.take();
    if principal.is_owner() {
        let opened = Destination::open(&Anywhere, path, landing, missing, arrival);
        let opened = opened.and_then(|opened| keeping_anywhere(opened, path, backup.as_ref()));
        return opened.map_err(|error| landing_refused(&error));
    }
    // A dry run reports the findings of a copy, so it requires the same right.
    let right = match operation {
        Operation::Copy | Operation::DryRun => "write",
        Operation::Verify => "read",
    };
    let resolved = principal.resolve(path);
    let resolved = resolved.map_err(|_| not_permitted(right))?;
    let may = match operation {
        Operation::Copy | Operation::DryRun => resolved.rights.write,
        Operation::Verify => resolved.rights.read,
    };
    if !may {
        let other = resolved.rights.read || resolved.rights.write;
        return Err(if other {
            lacks(principal, path, right)
        } else {
            not_permitted(right)
        });
    }
    if options.deletes() && !resolved.rights.delete {
        return Err(lacks(principal, path, "delete"));
    }
    let landing = match resolved.rest {
        None => Landing::Within,
        Some(_) => landing,
    };
    arrival.set_ids = set_ids_of(&resolved);
    arrival.keeper = Arc::new(arrival.keeper.within(may_of(&resolved)));
    let Commands { on_commit, filters } = resolved.commands;
    for (option, asked, allowed) in [
        ("--on-commit", &mut arrival.on_commit, on_commit),
        ("--filter-cmd", &mut arrival.filter, filters),
    ] {
        if let Some(asked) = asked {
            asked.command = command_of((option, allowed), &asked.command)?;
        }
    }
    let root = open_root(&resolved)?;
    let beneath = path_beneath(&resolved, path);
    let opened = Destination::open(&root, &beneath, landing, missing, arrival);
    let opened = opened.map_err(|error| landing_refused(&error))?;
    keeping_beneath(opened, (principal, path), backup.as_ref())
}

/// Returns the command that the daemon runs for a principal's request: one of the commands of its
/// root, found by name.
pub(super) fn command_of(
    (option, allowed): (&str, &BTreeMap<String, String>),
    asked: &[u8],
) -> Result<ByteString, Refused> {
    let name = std::str::from_utf8(asked).ok();
    let found = name.and_then(|name| allowed.get(name));
    let found = found.map(|text| text.as_bytes().to_vec().into());
    found.ok_or_else(|| {
        let own: Vec<&str> = allowed.keys().map(String::as_str).collect();
        let own = match own.as_slice() {
            [] => "none is allowed there".to_owned(),
            names => format!("there it is one of {}", names.join(", ")),
        };
        let text = format!(
            "{option}: at a daemon a command is one that its administrator named for the root, by \
             that name: {own}"
        );
        refused(Refusal::Forbidden, text)
    })
}

/// Opens a file that a stream writes completely or not at all.
fn open_stream(
    principal: &Principal,
    path: &[u8],
    request: &Request,
    mut arrival: Arrival,
) -> Result<Destination, Refused> {
    if request.options.operation != Operation::Copy {
        return Err(refused(
            Refusal::Malformed,
            "a stream is copied, and that is all",
        ));
    }
    let session = arrival.owner.session_number();
    let path_refused = |error: LandingError| landing_refused(&error);
    let stream = if principal.is_owner() {
        FileStream::open(&Anywhere, path, session).map_err(path_refused)?
    } else {
        let may_not = || not_permitted("write");
        let resolved = principal.resolve(path).map_err(|_| may_not())?;
        if !resolved.rights.write {
            return Err(if resolved.rights.read {
                lacks(principal, path, "write")
            } else {
                may_not()
            });
        }
        arrival.set_ids = set_ids_of(&resolved);
        let (root, path) = (open_root(&resolved)?, path_beneath(&resolved, path));
        FileStream::open(&root, &path, session).map_err(path_refused)?
    };
    Ok(Destination::stream(Arc::new(stream), arrival))
}

#[cfg(test)]
mod tests {
    use longhaul_engine::session::opening::OpenError;

    use super::*;
    use crate::client::connection::open_stop;
    use crate::stop::Exit;

    #[test]
    fn a_takeover_by_a_newer_run_is_reported() {
        let exit = |error| {
            let refused = landing_refused(&error);
            open_stop(&"host", &OpenError::Refused(refused)).exit
        };
        assert_eq!(exit(LandingError::Superseded), Exit::Superseded);
        assert_eq!(exit(LandingError::Open("x".to_owned())), Exit::Local);
    }
}
